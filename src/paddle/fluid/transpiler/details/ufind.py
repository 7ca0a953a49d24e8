"""Sets of elements that belong together."""

__all__ = ["UnionFind"]


class UnionFind:
    """Elements in disjoint sets; `union` joins the sets of two of them."""

    def __init__(self, elementes=None):
        self._parents = {element: element for element in elementes or ()}

    def find(self, x):
        """Returns the element that stands for the set of ``x``, or -1 if ``x`` is in none."""
        if x not in self._parents:
            return -1
        while self._parents[x] != x:
            self._parents[x] = x = self._parents[self._parents[x]]
        return x

    def union(self, x, y):
        """Joins the sets of two elements."""
        self._parents[self.find(x)] = self.find(y)

    def is_connected(self, x, y):
        """Whether two elements are in one set."""
        return self.find(x) == self.find(y)

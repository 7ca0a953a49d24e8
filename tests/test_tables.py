from refluid.tables import as_text, table


def test_columns_are_as_wide_as_their_content_and_numbers_are_aligned_to_the_right():
    found = table(["name", "n"], [["x", "10"], ["long name", "2"]])
    assert as_text(found) == "name        n\nx          10\nlong name   2"


def test_text_is_never_cut_or_wrapped():
    assert as_text(table(["a", "b"], [["x" * 300, "[bold]"]])).splitlines()[1] == "x" * 300 + "  [bold]"

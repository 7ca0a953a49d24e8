"""Beam search on LoD tensors: keeps the best partial sentences at every step."""

from __future__ import annotations

from paddle.fluid.data_feeder import check_type, check_variable_and_dtype
from paddle.fluid.layer_helper import LayerHelper
from paddle.fluid.layers._topics.core.append import append_single_op
from refluid.ir import Variable

__all__ = ["beam_search", "beam_search_decode"]


def beam_search(
    pre_ids,
    pre_scores,
    ids,
    scores,
    beam_size,
    end_id,
    level=0,
    is_accumulated=True,
    name=None,
    return_parent_idx=False,
):
    """Selects the best continuations of the current beams: their last tokens, scores and parents.

    Args:
      pre_ids, pre_scores: the last token and the score of each beam; LoD levels are sources and beams.
      ids, scores: candidate next tokens of each beam and the scores they lead to; without ids, one score for
        every token of the vocabulary. The LoD is that of ``pre_ids``.
      beam_size: the number of beams kept per source.
      end_id: the token that ends a sentence.
      level: the LoD level that holds the sources.
      is_accumulated: whether scores are accumulated; otherwise they are probabilities of the next token.
      return_parent_idx: also return the index of the beam that each result continues.
    """
    check_variable_and_dtype(pre_ids, "pre_ids", ["int64"], "beam_search")
    check_variable_and_dtype(pre_scores, "pre_scores", ["float32", "float64"], "beam_search")
    check_type(ids, "ids", (Variable, type(None)), "beam_search")
    check_variable_and_dtype(scores, "scores", ["float32", "float64"], "beam_search")
    helper = LayerHelper("beam_search", name=name)
    selected_scores = helper.create_variable_for_type_inference(pre_scores.dtype)
    selected_ids = helper.create_variable_for_type_inference(pre_ids.dtype)
    # Gathering by it must find the beams of the previous step.
    parent_idx = helper.create_variable_for_type_inference("int32")
    helper.append_op(
        type="beam_search",
        inputs={"pre_ids": pre_ids, "pre_scores": pre_scores, "scores": scores, "ids": ids},
        outputs={"selected_ids": selected_ids, "selected_scores": selected_scores, "parent_idx": parent_idx},
        attrs={"level": level, "beam_size": beam_size, "end_id": end_id, "is_accumulated": is_accumulated},
    )
    return (selected_ids, selected_scores, parent_idx) if return_parent_idx else (selected_ids, selected_scores)


def beam_search_decode(ids, scores, beam_size, end_id, name=None) -> tuple[Variable, Variable]:
    """Returns the sentences of each source, best first, with the score after each token.

    Args:
      ids, scores: tensor arrays of the results of `beam_search` at every step, initial tokens included.
    """
    check_type(ids, "ids", Variable, "beam_search_decode")
    check_type(scores, "scores", Variable, "beam_search_decode")
    outputs = {"SentenceIds": ids.dtype, "SentenceScores": scores.dtype}
    attrs = {"beam_size": beam_size, "end_id": end_id}
    made = append_single_op("beam_search_decode", {"Ids": ids, "Scores": scores}, outputs, attrs, name)
    return made["SentenceIds"], made["SentenceScores"]

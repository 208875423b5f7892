import pytest
import torch

from onepair.methods.method import highest_scored, highest_scored_per_class


def slow_highest_scored(scores, candidates, counts):
    """Column by column: sort the candidates by falling score, then by row."""
    chosen = [[False] * len(counts) for _ in scores]
    for column, count in enumerate(counts):
        rows = [row for row in range(len(scores)) if candidates[row][column]]
        for row in sorted(rows, key=lambda row: (-scores[row][column], row))[:count]:
            chosen[row][column] = True
    return chosen


@pytest.mark.parametrize("seed", range(5))
def test_equals_sorting_every_column_with_ties(seed):
    generator = torch.Generator().manual_seed(seed)
    scores = torch.randint(-2, 3, (40, 6), generator=generator).float()
    candidates = torch.rand(40, 6, generator=generator) < 0.5
    counts = [0, 1, 2, 7, 20, 40]
    chosen = highest_scored_per_class(scores, candidates, counts)
    assert chosen.tolist() == slow_highest_scored(scores.tolist(), candidates.tolist(), counts)


def test_without_candidates_nothing_is_chosen():
    assert not highest_scored(torch.zeros(3, 2), torch.zeros(3, 2, dtype=torch.bool), 2).any()


def test_a_matrix_is_chosen_from_row_by_row():
    scores = torch.tensor([[1.0, 5.0], [5.0, 5.0]])
    chosen = highest_scored(scores, torch.ones(2, 2, dtype=torch.bool), 2)
    assert chosen.tolist() == [[False, True], [True, False]]

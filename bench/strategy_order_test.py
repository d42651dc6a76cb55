"""Tests of strategy_order.py: python3 bench/strategy_order_test.py"""

import math
import unittest

from rank_agreement import Agreement
from strategy_order import chosen_over_best, figures_of


def document(measured, prices):
    """Strategies that take so many times as long as the reference, in three rounds on a machine that slows down."""
    runs = []
    for number in range(3):
        for strategy, factor in enumerate(measured):
            speed = 1.1 ** (number * len(measured) + strategy)
            runs.append({"round": number, "strategy": strategy, "reference_before_ms": [10 * speed] * 2, "steps_ms": [10 * factor * speed] * 2,
                         "reference_after_ms": [10 * speed] * 2})
    strategies = [{"name": "usual" if i == 0 else f"s{i}", "predicted_ms": price, "formula_ms": 1.0} for i, price in enumerate(prices)]
    return {"reference": "usual", "strategies": strategies, "runs": runs}


class StrategyOrder(unittest.TestCase):
    def test_figures_are_over_the_reference(self):
        measured, predicted = figures_of(document([1.0, 2.0, 0.5], [4.0, 8.0, 1.0]))
        self.assertEqual(len(measured["s1"]), 3)
        for figure in measured["s1"]:
            self.assertAlmostEqual(figure, math.log(2))
        self.assertAlmostEqual(predicted["usual"], 0)
        self.assertAlmostEqual(predicted["s2"], math.log(0.25))

    def test_the_chosen_one_is_compared_with_the_fastest(self):
        found = Agreement(*figures_of(document([1.0, 0.9, 0.8], [4.0, 3.0, 3.5])))
        self.assertAlmostEqual(chosen_over_best(found), 0.9 / 0.8 - 1)
        self.assertEqual(found.kendall_apart, 1 / 3)

    def test_other_prices_can_be_compared(self):
        _, predicted = figures_of(document([1.0, 2.0], [4.0, 8.0]), "formula_ms")
        self.assertEqual(predicted, {"usual": 0, "s1": 0})


if __name__ == "__main__":
    unittest.main()

"""Tests of rank_agreement.py: python3 bench/rank_agreement_test.py"""

import math
import random
import unittest

from rank_agreement import Agreement, agreement_of_halves, kendall, log_ratio, noise_of_a_difference, spread_of_a_round


class RankAgreement(unittest.TestCase):
    def test_tau_is_one_for_the_same_order_and_minus_one_for_the_reverse(self):
        self.assertEqual(kendall([1, 2, 3, 4], [10, 20, 30, 40]), (1.0, 6))
        self.assertEqual(kendall([1, 2, 3, 4], [4, 3, 2, 1]), (-1.0, 6))

    def test_tau_b_of_ties_is_that_of_the_textbook(self):
        # By hand: 12 pairs agree, 1 disagrees, a ties one of the 15 and b another: 11 / sqrt(14 * 14).
        a, b = [1, 2, 2, 3, 4, 5], [1, 2, 3, 3, 5, 4]
        self.assertAlmostEqual(kendall(a, b)[0], 11 / 14)

    def test_pairs_within_the_noise_are_left_out(self):
        # The pairs (0, 1) and (2, 3) are 0.01 apart and predicted the wrong way round.
        measured, predicted = [0.0, 0.01, 0.5, 0.51], [0.02, 0.0, 0.6, 0.5]
        self.assertEqual(kendall(measured, predicted, apart=0.1), (1.0, 4))
        self.assertAlmostEqual(kendall(measured, predicted)[0], (4 - 2) / 6)

    def test_a_machine_that_slows_down_does_not_change_a_run_over_its_reference(self):
        for speed in (1.0, 1.25, 2.0):
            # Half as slow again from one run to the next, evenly: the run lies in the middle of its references.
            drift = 1.5
            before, own, after = [100 * speed, 80 * speed], [150 * speed * drift, 120 * speed * drift], [100 * speed * drift**2, 80 * speed * drift**2]
            self.assertAlmostEqual(log_ratio(own, before, after), math.log(1.5))

    def test_the_spread_of_a_round_is_found_beside_disturbed_runs(self):
        draw = random.Random(7)
        plans = [[draw.gauss(place, 0.03) for _ in range(5)] for place in range(60)]
        for rounds in plans[::4]:
            rounds[draw.randrange(5)] += 1.0  # one run of every fourth plan was disturbed
        self.assertAlmostEqual(spread_of_a_round(plans), 0.03, delta=0.008)

    def test_one_of_twenty_equal_pairs_exceeds_the_noise(self):
        draw = random.Random(3)
        plans = [[draw.gauss(0, 0.05) for _ in range(5)] for _ in range(200)]
        noise = noise_of_a_difference(plans)
        figures = [sorted(rounds)[2] for rounds in plans]
        pairs = [abs(a - b) for i, a in enumerate(figures) for b in figures[:i]]
        self.assertAlmostEqual(sum(d > noise for d in pairs) / len(pairs), 0.05, delta=0.03)

    def test_halves_of_rounds_without_noise_agree(self):
        self.assertEqual(agreement_of_halves([[1, 1, 1, 1], [2, 2, 2, 2], [3, 3, 3, 3]]), 1.0)
        self.assertIsNone(agreement_of_halves([[1], [2], [3]]))

    def test_a_plan_that_is_level_with_the_best_counts_as_the_best(self):
        measured = {"a": [0.0, 0.02, -0.02], "b": [0.005, -0.015, 0.025], "c": [0.5, 0.51, 0.49]}
        found = Agreement(measured, {"a": 0.2, "b": 0.1, "c": 0.9})
        self.assertEqual((found.best, found.place_of_best, found.place_up_to_noise), ("a", 2, 1))
        self.assertEqual(found.kendall_apart, 1.0)

    def test_a_factor_that_all_predictions_have_in_common_is_no_error(self):
        measured = {name: [value] * 3 for name, value in (("a", 0.0), ("b", 0.1), ("c", 0.2))}
        found = Agreement(measured, {"a": 0.7, "b": 0.8, "c": 0.9})
        self.assertAlmostEqual(found.common_error, 0.7)
        self.assertTrue(all(abs(error) < 1e-9 for error in found.error.values()))


if __name__ == "__main__":
    unittest.main()

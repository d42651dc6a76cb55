"""How well a prediction ranks plans whose runs were measured in rounds, each run between two runs of a reference plan.

Dividing by the reference takes out how fast the machine was at that moment; medians over rounds take out what hit single runs.
All figures are natural logarithms: a plan's time over the reference's, so that 0.05 is 5 %.
"""

import itertools
import math
import random
import statistics


def log_ratio(steps, before, after):
    """A run's steps over those of the reference before and after it, which took in the same batches: the mean of the steps' logarithms."""
    return statistics.mean(math.log(step) - (math.log(first) + math.log(second)) / 2 for step, first, second in zip(steps, before, after))


def middle(rounds):
    """A plan's figure, of its rounds."""
    return statistics.median(rounds)


def spread_of_a_round(plans):
    """The standard deviation of one round's figure, from how far any two rounds of a plan lie apart, all plans together. Of the median distance, so that
    single disturbed runs, which medians over rounds ignore, hardly count."""
    distances = [abs(a - b) for rounds in plans for a, b in itertools.combinations(rounds, 2)]
    of_a_normal = 0.6745 * math.sqrt(2)  # the median distance of two draws, in standard deviations
    return statistics.median(distances) / of_a_normal if distances else 0.0


def noise_of_a_difference(plans, seed=1):
    """What the difference of two plans' figures exceeds by chance in one of twenty pairs that are equally fast: by drawing rounds of such plans."""
    spread = spread_of_a_round(plans)
    rounds = round(statistics.mean(len(own) for own in plans))
    draw = random.Random(seed)
    figure = lambda: middle([draw.gauss(0, spread) for _ in range(rounds)])
    differences = sorted(abs(figure() - figure()) for _ in range(20000))
    return differences[int(0.95 * len(differences))]


def kendall(a, b, apart=0.0):
    """Kendall's tau-b of two lists. With `apart`, of the pairs alone whose figures of `a` differ by more; pairs that `b` ties count as neither.
    Returns it and the number of pairs."""
    concordant = discordant = only_a_tied = only_b_tied = count = 0
    for i, j in itertools.combinations(range(len(a)), 2):
        if apart > 0 and abs(a[i] - a[j]) <= apart:
            continue
        count += 1
        in_a, in_b = a[i] - a[j], b[i] - b[j]
        if in_a == 0 or in_b == 0:
            only_a_tied += in_a == 0 and in_b != 0
            only_b_tied += in_b == 0 and in_a != 0
        elif (in_a > 0) == (in_b > 0):
            concordant += 1
        else:
            discordant += 1
    told = concordant + discordant
    scale = math.sqrt((told + only_a_tied) * (told + only_b_tied))
    return ((concordant - discordant) / scale if scale > 0 else 0.0), count


def agreement_of_halves(plans):
    """Kendall's tau of the figures from every other round with those from the rest: about what a perfect prediction would have with half of the
    rounds."""
    halves = [([*rounds][::2], [*rounds][1::2]) for rounds in plans if len(rounds) > 1]
    if len(halves) < 2:
        return None
    return kendall([middle(first) for first, _ in halves], [middle(second) for _, second in halves])[0]


class Agreement:
    """measured: by plan, its figures of all rounds; predicted: by plan, its figure."""

    def __init__(self, measured, predicted):
        self.names = list(measured)
        self.measured = {name: middle(rounds) for name, rounds in measured.items()}
        self.predicted = predicted
        rounds = list(measured.values())
        self.round_spread = spread_of_a_round(rounds)
        self.noise = noise_of_a_difference(rounds)
        self.halves = agreement_of_halves(rounds)
        of_measured, of_predicted = [self.measured[n] for n in self.names], [predicted[n] for n in self.names]
        self.kendall, self.num_pairs = kendall(of_measured, of_predicted)
        self.kendall_apart, self.num_apart = kendall(of_measured, of_predicted, apart=self.noise)
        self.by_prediction = sorted(self.names, key=predicted.get)
        self.best = min(self.names, key=self.measured.get)
        self.place_of_best = self.by_prediction.index(self.best) + 1
        self.level_with_best = [n for n in self.names if self.measured[n] - self.measured[self.best] <= self.noise]
        self.place_up_to_noise = min(self.by_prediction.index(n) for n in self.level_with_best) + 1
        # All plans are off by a common factor, which ranks nothing.
        common = statistics.median(predicted[n] - self.measured[n] for n in self.names)
        self.error = {n: predicted[n] - self.measured[n] - common for n in self.names}
        self.common_error = common

    def slower_than_best(self, count):
        """How much longer the fastest measured of the first few by prediction takes than the fastest of all."""
        return math.exp(min(self.measured[n] for n in self.by_prediction[:count]) - self.measured[self.best]) - 1

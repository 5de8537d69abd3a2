"""Prompts from templates: math, code, chat and plain English. Nothing is scraped; every prompt is made here.

Sources of variety besides the word lists of ``vocabulary``: the docstrings of the installed Python packages, the puzzle
generators of the package ``reasoning-gym`` and the glosses and examples of a WordNet folder; the last two are optional.
Each generator is an endless iterator of prompts drawn from one ``random.Random``.
"""

from __future__ import annotations

import importlib
import inspect
import pkgutil
import random
import re
import textwrap
from collections.abc import Callable, Iterator
from pathlib import Path

from dominotree.train import vocabulary as V

Template = Callable[[random.Random], str]
CAPITAL_AFTER = ("", "Please ", "Can you ", "Could you please ", "I need you to ", "Hi! ", "Hello, ")


# ---------------------------------------------------------------------------------------------------------- math


def _money(r: random.Random, low: int, high: int) -> str:
    return (
        f"${r.randint(low, high)}"
        if r.random() < 0.6
        else f"${r.randint(low, high)}.{r.choice((25, 50, 75, 99, 20, 40))}"
    )


def _people(r: random.Random, count: int) -> list[str]:
    return r.sample(V.NAMES, count)


def _math_story(r: random.Random) -> str:
    a, b, c = _people(r, 3)
    item, item2 = r.sample(V.ITEMS, 2)
    n, m, k, d = r.randint(3, 60), r.randint(2, 20), r.randint(2, 12), r.randint(2, 9)
    pron, poss = r.choice((("He", "his"), ("She", "her"), ("They", "their")))
    container = r.choice(("boxes", "bags", "baskets", "shelves", "jars", "drawers", "rows"))
    where = r.choice(("at the market", "at a shop", "in the park", "from a friend", "at school", "on a trip"))
    place = r.choice(("museum", "library", "gym", "zoo", "swimming pool", "theater", "stadium"))
    choices: tuple[Callable[[], str], ...] = (
        lambda: (
            f"{a} has {n} {item}. {pron} gets {m} more {where} and gives {min(d, n)} to {b}. How many {item} does {a} have now?"
        ),
        lambda: f"{a} had {n + m} {item}. {pron} gave {d} to {b} and {k} to {c}. How many {item} are left?",
        lambda: f"{a} has {n} {item} and {b} has {m} times as many. How many {item} do they have together?",
        lambda: (
            f"{a} packs {m * k} {item} into {k} {container} equally. How many {item} are in each of the {container}?"
        ),
        lambda: (
            f"There are {k} {container} with {m} {item} each. {a} takes away {d} {item}. How many {item} remain?"
        ),
        lambda: (
            f"{a} buys {k} {item} for {_money(r, 1, 9)} each and {d} {item2} for {_money(r, 1, 9)} each. How much does {a} pay?"
        ),
        lambda: (
            f"{a} buys {k} {item} at {_money(r, 1, 6)} each and pays with a ${r.choice((50, 100))} bill. How much change does {a} get?"
        ),
        lambda: f"{a} earns ${n} per hour. {pron} worked {m} hours this week. How much did {a} earn?",
        lambda: (
            f"{a} earns ${r.randint(8, 40)} an hour and works {r.randint(4, 10)} hours a day, {r.randint(3, 6)} days a week. What is {poss} weekly income?"
        ),
        lambda: f"{a} saves ${n} every week. How many weeks does {a} need to save ${n * m}?",
        lambda: f"{a} reads {n} pages a day. How many pages does {a} read in {m} days?",
        lambda: (
            f"A book has {n * k} pages. {a} reads {n} pages every day. How many days does it take to finish the book?"
        ),
        lambda: (
            f"A {r.choice(('car', 'bus', 'train', 'truck', 'motorcycle'))} travels at {r.randint(30, 120)} km per hour. How far does it go in {r.choice(('2', '3', '4', '1.5', '2.5', '3.5', '5'))} hours?"
        ),
        lambda: f"{a} drives {n * 6} miles in {k} hours. What is {poss} average speed?",
        lambda: (
            f"{a} runs {k} km on Monday, {d} km on Tuesday and {m} km on Wednesday. What is the average distance per day?"
        ),
        lambda: (
            f"{a} is {n} years old. {b} is {d} years older than {a}, and {c} is twice as old as {b}. How old is {c}?"
        ),
        lambda: (
            f"{a} is {k} times as old as {b}. The sum of their ages is {(k + 1) * m}. How old is each of them?"
        ),
        lambda: f"In {d} years {a} will be {n + d} years old. How old was {a} {r.randint(1, 3)} years ago?",
        lambda: (
            f"A {r.choice(('class', 'club', 'team', 'choir'))} has {n * 2} members. {r.choice((25, 50, 10, 20, 40))}% of them play {r.choice(V.SPORTS)}. How many members is that?"
        ),
        lambda: (
            f"A {place} ticket costs {_money(r, 4, 25)} for adults and {_money(r, 2, 10)} for children. How much do {d} adults and {k} children pay?"
        ),
        lambda: (
            f"A jacket costs ${n * 5}. It is reduced by {r.choice((10, 15, 20, 25, 30, 40, 50))}%. What is the new price?"
        ),
        lambda: (
            f"The price of a {r.choice(('phone', 'bike', 'sofa', 'table', 'camera', 'guitar'))} went from ${n * 10} to ${n * 10 + m * 5}. By what percentage did it increase?"
        ),
        lambda: (
            f"A farmer has {n} {r.choice(('cows', 'sheep', 'goats', 'horses'))} and {m} {r.choice(('ducks', 'geese', 'hens', 'turkeys'))}. How many {r.choice(('legs', 'feet'))} do they have in total?"
        ),
        lambda: (
            f"A recipe for {k} people needs {m} cups of {r.choice(('rice', 'milk', 'sugar', 'water', 'oats'))}. How many cups are needed for {k * d} people?"
        ),
        lambda: (
            f"A tank holds {n * 10} liters. {m} liters flow out every minute. How many liters are left after {d} minutes?"
        ),
        lambda: (
            f"A pump fills a pool with {n} liters per minute. How long does it take to fill {n * k * 10} liters?"
        ),
        lambda: f"{k} workers build a wall in {m} days. How long would {k * 2} workers need?",
        lambda: f"If {k} {item} cost ${k * d}, how much do {m} {item} cost?",
        lambda: (
            f"{a} and {b} share {n * 2} {item} so that {a} gets {d * 2} more than {b}. How many does each get?"
        ),
        lambda: (
            f"{a} has {n} {item}. {r.choice(('Half', 'A third', 'A quarter', 'Two thirds', 'Three quarters'))} of them are {r.choice(('red', 'blue', 'green', 'old', 'broken'))}. How many is that?"
        ),
        lambda: (
            f"{a} cuts a rope of {n * 2} meters into pieces of {d} meters. How many pieces are there and how much rope is left?"
        ),
        lambda: (
            f"A theater has {m} rows with {n} seats in each row. {r.randint(5, m * 3)} seats are empty. How many people are in the theater?"
        ),
        lambda: (
            f"{a} plants {n} trees in {k} days, the same number each day... then {m} trees on the last day. How many trees are there altogether?".replace(
                "... then", ", then"
            )
        ),
        lambda: (
            f"A bottle of {r.choice(('juice', 'water', 'milk'))} costs {_money(r, 1, 4)}. A pack of {k} costs {_money(r, 5, 15)}. How much do you save with the pack?"
        ),
        lambda: (
            f"{a} collects {n} {item} in the first week and {d} more every following week. How many {item} does {a} have after {k} weeks?"
        ),
        lambda: (
            f"{a} walks {d} kilometers to school and back every day. How many kilometers does {a} walk in {m} days?"
        ),
        lambda: (
            f"There are {n} {item} on a table. {a} takes {r.randint(1, 3)}, {b} takes twice as many. How many {item} are left on the table?"
        ),
        lambda: (
            f"A bakery sells {n} {r.choice(('rolls', 'cakes', 'bagels', 'croissants'))} in the morning and {m} fewer in the afternoon. How many does it sell in a day?"
        ),
        lambda: (
            f"{a} watches {d} episodes of {r.choice((20, 25, 30, 45, 50))} minutes each. How many hours is that?"
        ),
        lambda: (
            f"A phone battery loses {d}% every hour. It is at {r.randint(60, 100)}% now. What is it after {r.randint(2, 6)} hours?"
        ),
    )
    return r.choice(choices)()


def _math_plain(r: random.Random) -> str:
    a, b, c = r.randint(2, 99), r.randint(2, 99), r.randint(2, 30)
    p, q, s, t = r.randint(1, 9), r.randint(2, 12), r.randint(1, 9), r.randint(2, 12)
    x, y = r.randint(1, 15), r.randint(1, 12)
    shape = r.choice((
        f"a rectangle that is {a} cm long and {c} cm wide", f"a square with a side of {a} meters",
        f"a circle with a radius of {c} cm", f"a triangle with base {a} cm and height {c} cm",
        f"a trapezoid with parallel sides {a} cm and {b} cm and height {c} cm", f"a parallelogram with base {a} m and height {c} m",
    ))  # fmt: skip
    solid = r.choice((f"a cube with edge {c} cm", f"a cylinder with radius {x} cm and height {c} cm", f"a sphere with radius {x} cm",
                      f"a box of {x} by {y} by {c} cm", f"a cone with radius {x} cm and height {c} cm"))  # fmt: skip
    unit = r.choice((f"{a} kilometers to meters", f"{a * 10} minutes to hours", f"{x}.{r.randint(1, 9)} hours to minutes",
                     f"{a} inches to centimeters", f"{a * 100} grams to kilograms", f"{a} degrees Celsius to Fahrenheit",
                     f"{a} degrees Fahrenheit to Celsius", f"{x} gallons to liters", f"{a} miles to kilometers",
                     f"{x} days to hours", f"{a * 7} days to weeks", f"{a} pounds to kilograms", f"{a}% to a fraction"))  # fmt: skip
    numbers = [r.randint(1, 60) for _ in range(r.randint(4, 7))]
    listed = ", ".join(map(str, numbers[:-1])) + f" and {numbers[-1]}"
    sign = r.choice("+-")
    task = r.choice((
        f"What is {a} {r.choice(('+', '-', '*', 'times', 'plus', 'minus'))} {b}?",
        f"What is {a * c} divided by {c}?", f"Calculate {a} * {b} step by step.", f"Compute {a} + {b} * {c}.",
        f"What is ({a} + {b}) * {c}?", f"Evaluate {a}^2 - {b}.", f"What is the square root of {x * x}?", f"What is {x} to the power of {r.randint(2, 4)}?",
        f"What is {p}/{q} {r.choice('+-')} {s}/{t}?", f"What is {p}/{q} {r.choice(('times', 'divided by'))} {s}/{t}? Show the steps.",
        f"Simplify the fraction {p * c}/{q * c}.", f"Write {p}/{q} as a decimal.", f"What is {r.choice((5, 10, 12, 20, 25, 30, 40, 60, 75, 80))}% of {a * 10}?",
        f"{a} is what percent of {a * y}?", f"Increase {a * 10} by {r.choice((5, 10, 15, 20, 25))}%.", f"Decrease {a * 10} by {r.choice((5, 10, 15, 20, 25))}%.",
        f"Solve for x: {p}x + {b} = {p * x + b}.", f"Solve for x: {q}x - {b} = {q * x - b}. Explain each step.", f"Solve the equation {p}(x {sign} {c}) = {p * x}.",
        f"Solve the equation x/{q} + {c} = {x + c}.", f"Solve the equation {p + s}x + {a} = {s}x + {p * x + a}.", f"If {p}x = {p * x}, what is x + {b}?",
        f"Solve the system of equations: x + y = {x + y}, x - y = {x - y}.", f"Solve the system: {p}x + y = {p * x + y} and x + {s}y = {x + s * y}.",
        f"Solve x^2 - {x + y}x + {x * y} = 0.", f"Factor x^2 + {x + y}x + {x * y}.", f"Expand (x + {x})(x {sign} {y}).", f"Find the roots of x^2 - {x * x} = 0.",
        f"Find the area of {shape}.", f"What is the perimeter of {shape}?", f"What is the volume of {solid}?", f"Find the surface area of {solid}.",
        f"A right triangle has legs of {x} and {y}. How long is the hypotenuse?", f"Two angles of a triangle are {a % 60 + 20} and {b % 50 + 30} degrees. What is the third angle?",
        f"Convert {unit}.", f"How many {r.choice(('seconds', 'minutes', 'hours'))} are there in {x} {r.choice(('days', 'weeks'))}?",
        f"Find the mean of {listed}.", f"What is the median of {listed}?", f"Find the range and the mode of {listed}.", f"Arrange these numbers from smallest to largest: {listed}.",
        f"What is the greatest common divisor of {x * c} and {y * c}?", f"Find the least common multiple of {x} and {q}.", f"List the factors of {a}.",
        f"What are the prime factors of {a * 2}?", f"Is {a * 2 + 1} a prime number?", f"Write {a * b} in scientific notation.", f"Round {a}.{r.randint(100, 999)} to {r.choice(('one decimal place', 'two decimal places', 'the nearest whole number'))}.",
        f"What is the next number in the sequence {x}, {x + q}, {x + 2 * q}, {x + 3 * q}?", f"What is the {r.choice((5, 8, 10, 12, 20))}th term of the sequence {x}, {x + q}, {x + 2 * q}, ...?",
        f"Find the sum of the first {x + 3} terms of the sequence {p}, {p * 2}, {p * 4}, ...", f"The sum of two numbers is {a + b} and their difference is {abs(a - b)}. What are the numbers?",
        f"The sum of {r.choice(('two', 'four', 'five'))} consecutive {r.choice(('integers', 'even numbers', 'odd numbers'))} is {a * 4}. Find them.",
        f"A number is multiplied by {q} and then {b} is {r.choice(('added', 'subtracted'))}. The result is {q * x + b}. What is the number?", f"Twice a number plus {c} equals {2 * x + c}. Find the number.",
        f"A bag has {p} red, {s} blue and {q} green balls. What is the probability of drawing a {r.choice(('red', 'blue', 'green'))} ball?",
        f"What is the probability of rolling {r.choice(('an even number', 'a number greater than 4', 'a 6', 'a prime number'))} with a fair die?",
        f"A coin is tossed {r.randint(2, 5)} times. What is the probability of getting {r.choice(('all heads', 'exactly one head', 'no heads', 'at least one tail'))}?",
        f"In how many ways can {r.randint(3, 7)} {r.choice(('books', 'people', 'letters'))} be arranged in a row?", f"How many ways are there to choose {r.randint(2, 4)} people from a group of {r.randint(5, 12)}?",
        f"Find the slope of the line through ({x}, {y}) and ({x + p}, {y + s}).", f"Write the equation of the line with slope {p} through ({x}, {y}).", f"What is the distance between ({x}, {y}) and ({a}, {b})?",
        f"If f(x) = {p}x^2 {sign} {q}x, what is f({s})?", f"What is the derivative of {p}x^{r.randint(2, 5)} + {q}x?", f"Find the integral of {p}x^{r.randint(1, 4)}.", f"What is log base 2 of {2 ** r.randint(2, 9)}?",
        f"${a * 100} is invested at {r.randint(2, 9)}% simple interest per year. How much is it worth after {r.randint(2, 6)} years?", f"How much is ${a * 100} at {r.randint(2, 9)}% compound interest after {r.randint(2, 4)} years?",
        f"Divide {a * 6} in the ratio {p}:{s}.", f"The ratio of cats to dogs is {p}:{s}. There are {p * q} cats. How many dogs are there?", f"A map has a scale of 1:{c * 1000}. How far are {x} cm on the map in reality?",
        f"What time is it {r.randint(2, 11)} hours and {r.choice((10, 15, 25, 40, 50))} minutes after {r.randint(1, 12)}:{r.choice(('00', '15', '30', '45'))}?",
    ))  # fmt: skip
    return task + r.choice(
        (
            "",
            "",
            "",
            "",
            " Show your work.",
            " Explain your answer.",
            " Think step by step.",
            " Explain step by step.",
        )
    )


def _math_concept(r: random.Random) -> str:
    topic = r.choice(["fractions", "decimals", "percentages", "ratios", "prime numbers", "the Pythagorean theorem", "linear equations", "quadratic equations", "the quadratic formula", "exponents", "logarithms", "square roots", "negative numbers", "long division", "the order of operations", "probability", "the mean and the median", "standard deviation", "permutations and combinations", "the area of a circle", "pi", "the volume of a sphere", "similar triangles", "sine and cosine", "vectors", "matrices", "derivatives", "integrals", "limits", "sets", "functions", "inequalities", "absolute value", "coordinates", "slope", "arithmetic sequences", "geometric sequences", "rounding", "estimation", "multiplication tables", "word problems", "place value", "factoring", "polynomials", "complex numbers"])  # fmt: skip
    return r.choice((f"Explain {topic} with an example.", f"What is the idea behind {topic}?", f"Teach me {topic} in simple terms.",
                     f"Give me three practice problems about {topic} with solutions.", f"Why are {topic} useful in everyday life?",
                     f"Write a short lesson about {topic} for a {r.choice(('fourth', 'fifth', 'sixth', 'eighth'))} grader.",
                     f"What mistakes do students often make with {topic}?"))  # fmt: skip


def math_prompts(r: random.Random) -> Iterator[str]:
    """Word problems (60 %), bare exercises (37 %), questions about concepts (3 %)."""
    while True:
        u = r.random()
        yield _math_story(r) if u < 0.6 else _math_plain(r) if u < 0.97 else _math_concept(r)


def reasoning_gym_prompts(r: random.Random, per_task: int) -> Iterator[str]:
    """Problems of the package ``reasoning-gym`` (nothing if it is not installed): mostly ``gsm_symbolic``."""
    try:
        gym = importlib.import_module("reasoning_gym")
    except ImportError:
        return
    tasks = {"gsm_symbolic": 14, "chain_sum": 1, "basic_arithmetic": 1, "simple_equations": 1, "fraction_simplification": 1,
             "gcd": 1, "lcm": 1, "leg_counting": 1, "calendar_arithmetic": 1, "time_intervals": 1, "prime_factorization": 1,
             "products": 1, "number_sequence": 1, "simple_geometry": 1, "polynomial_equations": 1, "count_primes": 1,
             "letter_counting": 1, "spell_backward": 1}  # fmt: skip
    for name, share in tasks.items():
        data = gym.create_dataset(name, size=per_task * share, seed=r.randint(0, 10**6))
        for index in range(per_task * share):
            question = data[index]["question"].strip()
            marker = question.find("Give the result as")
            yield (question[:marker].strip() if marker > 40 else question)


# ---------------------------------------------------------------------------------------------------------- code

#: Building blocks of made-up functions: description, argument, Python body over ``x`` or ``items``; composed and executed.
_LIST_OPS: tuple[tuple[str, str], ...] = (
    ("keep only the even numbers", "[x for x in items if x % 2 == 0]"), ("keep only the odd numbers", "[x for x in items if x % 2]"),
    ("keep only the positive numbers", "[x for x in items if x > 0]"), ("remove the negative numbers", "[x for x in items if x >= 0]"),
    ("square every number", "[x * x for x in items]"), ("double every number", "[2 * x for x in items]"), ("add one to every number", "[x + 1 for x in items]"),
    ("negate every number", "[-x for x in items]"), ("take the absolute value of every number", "[abs(x) for x in items]"),
    ("sort the numbers in ascending order", "sorted(items)"), ("sort the numbers in descending order", "sorted(items, reverse=True)"),
    ("reverse the list", "items[::-1]"), ("remove duplicates and keep the order", "list(dict.fromkeys(items))"), ("drop the first element", "items[1:]"),
    ("drop the last element", "items[:-1]"), ("keep every second element", "items[::2]"), ("keep the three largest numbers", "sorted(items)[-3:]"),
    ("keep the numbers above the average", "[x for x in items if x > sum(items) / max(len(items), 1)]"), ("replace every number by its last digit", "[abs(x) % 10 for x in items]"),
    ("keep the multiples of three", "[x for x in items if x % 3 == 0]"), ("subtract the minimum from every number", "[x - min(items) for x in items]"),
    ("compute the differences of neighbours", "[b - a for a, b in zip(items, items[1:])]"), ("compute the running sums", "[sum(items[: i + 1]) for i in range(len(items))]"),
)  # fmt: skip
_LIST_ENDS: tuple[tuple[str, str, str], ...] = (
    ("return the result", "items", "list"), ("return the sum", "sum(items)", "int"), ("return how many numbers are left", "len(items)", "int"),
    ("return the largest number, or None if nothing is left", "max(items) if items else None", "int"), ("return the smallest number, or None if nothing is left", "min(items) if items else None", "int"),
    ("return True if more than two numbers are left", "len(items) > 2", "bool"), ("return the numbers joined by commas", "','.join(map(str, items))", "str"),
    ("return the index of the largest number, or -1 if nothing is left", "items.index(max(items)) if items else -1", "int"),
    ("return a dictionary from each number to its count", "{x: items.count(x) for x in items}", "dict"), ("return the result as a tuple", "tuple(items)", "tuple"),
    ("return True if the result is sorted", "items == sorted(items)", "bool"), ("return the first and the last number", "(items[0], items[-1]) if items else None", "tuple"),
)  # fmt: skip
_TEXT_OPS: tuple[tuple[str, str], ...] = (
    ("turn the text into lower case", "text.lower()"), ("turn the text into upper case", "text.upper()"), ("remove all spaces", "text.replace(' ', '')"), ("reverse the text", "text[::-1]"),
    ("remove all vowels", "''.join(c for c in text if c.lower() not in 'aeiou')"), ("keep only the letters", "''.join(c for c in text if c.isalpha())"), ("keep only the digits", "''.join(c for c in text if c.isdigit())"),
    ("replace spaces by underscores", "text.replace(' ', '_')"), ("capitalize every word", "text.title()"), ("swap the case of every letter", "text.swapcase()"), ("sort the characters", "''.join(sorted(text))"),
    ("remove repeated characters", "''.join(dict.fromkeys(text))"), ("drop the first character", "text[1:]"), ("reverse the order of the words", "' '.join(text.split()[::-1])"),
    ("reverse every word", "' '.join(w[::-1] for w in text.split())"), ("double every character", "''.join(c * 2 for c in text)"), ("keep every other character", "text[::2]"), ("sort the words alphabetically", "' '.join(sorted(text.split()))"),
    ("remove the punctuation marks", "''.join(c for c in text if c.isalnum() or c == ' ')"), ("keep the words longer than three letters", "' '.join(w for w in text.split() if len(w) > 3)"),
)  # fmt: skip
_TEXT_ENDS: tuple[tuple[str, str, str], ...] = (
    ("return the result", "text", "str"), ("return its length", "len(text)", "int"), ("return the number of words", "len(text.split())", "int"), ("return the list of words", "text.split()", "list"),
    ("return the number of vowels", "sum(c in 'aeiouAEIOU' for c in text)", "int"), ("return the longest word", "max(text.split(), key=len, default='')", "str"), ("return True if it reads the same backwards", "text == text[::-1]", "bool"),
    ("return a dictionary with the count of each character", "{c: text.count(c) for c in text}", "dict"), ("return the set of its characters as a sorted list", "sorted(set(text))", "list"), ("return the first three characters", "text[:3]", "str"),
)  # fmt: skip
_STOPWORDS = {
    "the",
    "a",
    "an",
    "all",
    "every",
    "of",
    "and",
    "or",
    "its",
    "it",
    "by",
    "into",
    "only",
    "if",
    "to",
    "with",
    "as",
    "from",
    "each",
    "is",
    "in",
    "that",
}


def _function_name(r: random.Random, steps: list[str]) -> str:
    words = [w for step in steps for w in re.findall(r"[a-z]+", step.lower()) if w not in _STOPWORDS]
    return (
        "_".join(words[: r.randint(2, 4)])
        if r.random() < 0.8
        else r.choice(("solve", "process", "transform", "compute", "f", "func", "helper"))
    )


def _completion(r: random.Random) -> str:
    """A signature with a docstring and examples, whose values are computed by running the function."""
    is_list = r.random() < 0.6
    ops, ends = (_LIST_OPS, _LIST_ENDS) if is_list else (_TEXT_OPS, _TEXT_ENDS)
    chosen = r.sample(ops, r.choice((1, 1, 2, 2, 3)))
    end = r.choice(ends)
    argument = "items" if is_list else "text"
    shown = r.choice(
        ("numbers", "lst", "arr", "values", "nums", "xs", "l")
        if is_list
        else ("text", "s", "string", "sentence", "word", "st")
    )

    def run(value: object) -> object:
        for _, code in chosen:
            value = eval(code, {argument: value})
        return eval(end[1], {argument: value})

    samples: list[object] = []
    for _ in range(r.choice((0, 1, 2, 2, 3))):
        if is_list:
            samples.append([r.randint(-12, 30) for _ in range(r.randint(2, 7))])
        else:
            samples.append(
                " ".join(r.choice(V.ITEMS + V.ANIMALS + V.ABSTRACT) for _ in range(r.randint(1, 3)))
            )
    name = _function_name(r, [c[0] for c in chosen])
    steps = [c[0] for c in chosen]
    said = r.choice((
        f"Given a {'list of integers' if is_list else 'string'} {shown}, {', '.join(steps)} and then {end[0]}.", f"{', then '.join(steps).capitalize()}, and {end[0]}.",
        f"Take {shown}, {', '.join(steps)}; {end[0]}.", f"You are given {'a list' if is_list else 'a text'}. {'. Then '.join(steps).capitalize()}. Finally {end[0]}.",
    ))  # fmt: skip
    lines = textwrap.wrap(said, 76)
    style = r.random()
    for sample in samples:
        if style < 0.6:
            lines += [f">>> {name}({sample!r})", repr(run(sample))]
        else:
            lines.append(f"{name}({sample!r}) {r.choice(('==', '=>', '➞', 'returns'))} {run(sample)!r}")
    hint = {"list": "list", "int": "int", "bool": "bool", "str": "str", "dict": "dict", "tuple": "tuple"}[
        end[2]
    ]
    annotated = r.random() < 0.5
    list_type = r.choice(("List[int]", "list[int]", "list"))
    signature = f"def {name}({shown}{(': ' + (list_type if is_list else 'str')) if annotated else ''}){f' -> {hint}' if annotated else ''}:"
    quote = r.choice(('"""', '"""', "'''"))
    head = "from typing import List\n\n\n" if annotated and "List[" in signature and r.random() < 0.7 else ""
    body = "\n    ".join(lines)
    return _complete(
        r, f"{head}{signature}\n    {quote}{r.choice(('', ' ', chr(10) + '    '))}{body}\n    {quote}\n"
    )


def _complete(r: random.Random, code: str) -> str:
    ask = r.choice(("Complete the following Python function:",) * 5 + ("Complete this function:", "Finish the implementation:", "Implement the following function in Python:",
                    "Write the body of this Python function:", "Fill in the missing code:"))  # fmt: skip
    return f"{ask}\n\n```python\n{code.rstrip()}\n```"


def _code_request(r: random.Random) -> str:
    language = "Python" if r.random() < 0.7 else r.choice(V.PROGRAMMING)
    task = r.choice(V.PYTHON_TASKS)
    verb = task.split()[0]
    base = {"ies": "y"}.get(verb[-3:])
    infinitive = (
        verb[:-3] + base
        if base
        else verb[:-2]
        if verb.endswith(("shes", "ches", "sses", "xes", "zes"))
        else verb[:-1]
        if verb.endswith("s")
        else verb
    ) + task[len(verb) :]
    table, table2 = r.sample(V.SQL_TABLES, 2)
    concept, concept2 = r.sample(V.CODE_CONCEPTS, 2)
    thing = r.choice(V.CLASSES)
    u = r.random()
    if u < 0.45:
        extra = r.choice(
            (
                "",
                "",
                "",
                "",
                " Add comments.",
                " Explain how it works.",
                " Include an example.",
                " Use recursion.",
                " Handle invalid input.",
                " Add type hints and a docstring.",
                " Keep it short.",
                " Do not use any library.",
                " Write a test for it.",
            )
        )
        return r.choice((
            f"Write a {language} function that {task}.", f"Write a {language} function to {infinitive}.", f"Write a {language} program that {task}.", f"Can you write a {language} function that {task}?",
            f"Create a {language} script that {task}.", f"Implement a {language} function that {task}.", f"I need a {language} function that {task}.", f"Show me how to {infinitive} in {language}.",
            f"How can I {infinitive} in {language}?", f"How do I {infinitive} in {language}?", f"Give me {language} code that {task}.",
        )) + extra  # fmt: skip
    if u < 0.58:
        return r.choice((f"Write a {language} class for {thing}.", f"Write a {language} class that represents {thing}.", f"Design a class for {thing} in {language} with at least {r.choice(('two', 'three', 'four'))} methods.",
                         f"Implement {thing} in {language}.", f"Create a simple {language} program for {thing}.", f"Write a {language} class {''.join(w.title() for w in thing.split()[1:])} with a constructor and a method that prints its state."))  # fmt: skip
    if u < 0.74:
        return r.choice((f"Explain {concept} in {language} with an example.", f"What are {concept}?", f"What is the difference between {concept} and {concept2}?", f"When should I use {concept} in {language}?",
                         f"Give an example of {concept} in {language}.", f"What are the advantages of {concept}?", f"How do {concept} work in {language}?", f"Explain {concept} to a beginner.", f"What are common mistakes with {concept} in {language}?",
                         f"Write a short tutorial about {concept}."))  # fmt: skip
    if u < 0.84:
        column = r.choice(
            ("name", "price", "date", "city", "age", "total", "status", "country", "rating", "salary")
        )
        return r.choice((f"Write a SQL query that returns all {table} sorted by {column}.", f"Write a SQL query that counts the {table} per {column}.", f"Write a SQL query that joins {table} and {table2}.",
                         f"Write a SQL query that finds the {r.choice(('three', 'ten', 'first', 'last'))} {table} with the {r.choice(('highest', 'lowest'))} {column}.", f"Write a SQL statement that creates a table for {table}.",
                         f"Write a SQL query that deletes all {table} with an empty {column}.", f"Write a SQL query that updates the {column} of a row in {table}.", f"Write a SQL query that returns the average {column} of {table} per {table2}."))  # fmt: skip
    page = r.choice(
        (
            "a contact form",
            "a login form",
            "a navigation bar",
            "a photo gallery",
            "a pricing table",
            "a to-do list",
            "a countdown timer",
            "a personal homepage",
            "a button that changes color",
            "a table with three columns",
            "a modal dialog",
            "a dark mode switch",
        )
    )
    command = r.choice(
        (
            "find all large files",
            "count the lines of all Python files",
            "rename a branch in git",
            "undo the last git commit",
            "search for a word in many files",
            "compress a folder",
            "list running processes",
            "kill a process",
            "copy files to a server",
            "show disk usage",
            "create a virtual environment",
            "install a package with pip",
            "run a script every night",
            "merge two git branches",
            "set an environment variable",
        )
    )
    return r.choice((f"Write the HTML and CSS for {page}.", f"Write JavaScript code for {page}.", f"How do I {command} on the command line?", f"What does the command to {command} look like? Explain it.", f"Write a Bash script to {command}.",
                     f"Write a regular expression that matches {r.choice(('an email address', 'a date', 'a phone number', 'a URL', 'a hex color', 'an IP address', 'a postal code', 'a word in quotes', 'a floating point number', 'a time of day'))}.",
                     f"Write unit tests for a function that {task}.", f"Review the idea: a {language} function that {task}. What edge cases are there?", f"Write pseudocode for a function that {task}.", f"Explain line by line a {language} function that {task}."))  # fmt: skip


def docstring_functions(packages: tuple[str, ...]) -> list[str]:
    """``def name(signature): docstring`` of the public functions of installed packages; sources are not used."""
    found: dict[str, str] = {}
    for package in packages:
        try:
            module = importlib.import_module(package)
        except (
            Exception
        ):  # an optional package may fail in any way while it is imported; it is then simply left out
            continue
        modules = [module]
        for info in pkgutil.iter_modules(getattr(module, "__path__", [])):
            if info.name.startswith("_") or "test" in info.name:
                continue
            try:
                modules.append(importlib.import_module(f"{package}.{info.name}"))
            except Exception:  # as above
                continue
        for part in modules:
            for name, item in list(vars(part).items()):
                members = [(name, item)]
                if inspect.isclass(item) and (item.__module__ or "").startswith(package):
                    members += [
                        (key, value) for key, value in vars(item).items() if inspect.isfunction(value)
                    ]
                for key, value in members:
                    if key.startswith("_") or not callable(value) or inspect.isclass(value):
                        continue
                    doc = inspect.getdoc(value)
                    if not doc or not len(doc) >= 30:
                        continue
                    try:
                        signature = re.sub(r"<[^>]*>", "None", str(inspect.signature(value)))
                    except (TypeError, ValueError):
                        continue
                    if len(signature) > 160:
                        continue
                    short = "\n\n".join(doc.split("\n\n")[:2])[:420].rstrip()
                    found.setdefault(
                        f"{key}{short[:60]}",
                        f'def {key}{signature}:\n    """{textwrap.indent(short, "    ").strip()}\n    """',
                    )
    return sorted(found.values())


DOCSTRING_PACKAGES = tuple(
    [
        "os",
        "os.path",
        "shutil",
        "re",
        "json",
        "csv",
        "math",
        "cmath",
        "random",
        "statistics",
        "string",
        "textwrap",
        "datetime",
        "calendar",
        "itertools",
        "functools",
        "operator",
        "collections",
        "heapq",
        "bisect",
        "array",
        "copy",
        "pprint",
        "enum",
        "decimal",
        "fractions",
        "pathlib",
        "glob",
        "fnmatch",
        "tempfile",
        "zipfile",
        "tarfile",
        "gzip",
        "hashlib",
        "hmac",
        "secrets",
        "io",
        "time",
        "argparse",
        "logging",
        "configparser",
        "subprocess",
        "threading",
        "queue",
        "sched",
        "asyncio",
        "socket",
        "urllib.parse",
        "urllib.request",
        "http.client",
        "html",
        "html.parser",
        "xml.etree.ElementTree",
        "email",
        "base64",
        "binascii",
        "struct",
        "codecs",
        "unicodedata",
        "difflib",
        "inspect",
        "ast",
        "dis",
        "types",
        "typing",
        "dataclasses",
        "abc",
        "contextlib",
        "traceback",
        "warnings",
        "unittest",
        "doctest",
        "timeit",
        "cProfile",
        "pstats",
        "platform",
        "getpass",
        "locale",
        "gettext",
        "sqlite3",
        "shelve",
        "pickle",
        "tokenize",
        "keyword",
        "ipaddress",
        "uuid",
        "colorsys",
        "wave",
        "zlib",
        "lzma",
        "bz2",
        "numpy",
        "numpy.linalg",
        "numpy.random",
        "numpy.fft",
        "numpy.polynomial",
        "pandas",
        "networkx",
        "networkx.algorithms",
        "sympy",
        "sympy.ntheory",
        "sympy.geometry",
        "sympy.matrices",
        "sympy.core",
        "torch",
        "torch.nn.functional",
        "torch.linalg",
        "torch.special",
        "torch.utils",
        "tqdm",
        "yaml",
        "requests",
        "httpx",
        "jinja2",
        "markdown_it",
        "pygments",
        "click",
        "rich",
        "huggingface_hub",
        "transformers",
        "plotly.express",
        "PIL",
        "PIL.ImageOps",
        "PIL.ImageDraw",
        "fastapi",
        "starlette",
        "pydantic",
        "dateutil",
        "pytz",
        "tabulate",
        "hypothesis.strategies",
    ]
)


def code_prompts(r: random.Random, docstrings: list[str]) -> Iterator[str]:
    """Requests (52 %), made-up functions with computed examples (33 %), functions of installed packages (15 %)."""
    while True:
        u = r.random()
        if u < 0.52:
            yield _code_request(r)
        elif u < 0.85 or not docstrings:
            yield _completion(r)
        else:
            yield _complete(r, r.choice(docstrings))


# ---------------------------------------------------------------------------------------------------------- chat

_TOPICS = V.SCIENCE + V.TECHNOLOGY + V.HISTORY + V.ECONOMY + V.ARTS + V.SPORTS + V.ABSTRACT
_CONCRETE = V.SCIENCE + V.TECHNOLOGY


def _explain(r: random.Random) -> str:
    t, t2 = r.sample(_TOPICS, 2)
    s = r.choice(_CONCRETE)
    audience = r.choice(
        (
            "a child",
            "a five-year-old",
            "a twelve-year-old",
            "a beginner",
            "a teenager",
            "my grandmother",
            "a high school student",
            "someone with no background",
            "a college student",
        )
    )
    n = r.choice(("two", "three", "four", "five", "six", "seven", "ten", "3", "5", "10"))
    return r.choice((
        f"What is {t}?", f"What is {s}, and how does it work?", f"Explain {t} to {audience}.", f"Explain {s} in simple terms.", f"How does {s} work?", f"How do {s} work?", f"Why is {t} important?",
        f"What are the main causes of {t}?", f"What are the effects of {t}?", f"What are the advantages and disadvantages of {t}?", f"What is the difference between {t} and {t2}?", f"Compare {t} and {t2}.",
        f"Tell me about {t}.", f"Give me a short introduction to {t}.", f"Give me {n} facts about {t}.", f"List {n} examples of {t}.", f"Describe the history of {t}.", f"Summarize what is known about {t}.",
        f"What are some common misconceptions about {t}?", f"How has {t} changed over time?", f"What is the future of {t}?", f"Who contributed most to {t}?", f"What role does {t} play in everyday life?",
        f"Write a paragraph about {t}.", f"Write a short essay about {t}.", f"Write a quiz with {n} questions about {t}.", f"What should everyone know about {t}?", f"How does {t} affect {r.choice(('people', 'society', 'the environment', 'our health', 'the economy', 'children', 'culture'))}?",
        f"What are the benefits of {t}?", f"What are the risks of {t}?", f"How is {t} related to {t2}?", f"Define {t} in one sentence and give an example.", f"What happens during {r.choice(V.SCIENCE)}?", f"Why do we need {s}?",
        f"Write an outline for a talk on {t}.", f"Explain the connection between {t} and {t2}.", f"What would happen without {s}?", f"What are the main types of {s}?", f"Describe {s} step by step.", f"What are the phases of {s}?",
    ))  # fmt: skip


def _advice(r: random.Random) -> str:
    g, k, f = r.choice(V.GOALS), r.choice(V.SKILLS), r.choice(V.FEELINGS)
    event, food, place = r.choice(V.EVENTS), r.choice(V.FOODS), r.choice(V.CITIES + V.COUNTRIES)
    n = r.choice(("two", "three", "four", "five", "six", "seven", "ten", "some", "a few"))
    who = r.choice(
        (
            "my mother",
            "my best friend",
            "my husband",
            "my wife",
            "a colleague",
            "my teacher",
            "a teenager",
            "a toddler",
            "my grandfather",
            "a ten-year-old",
            "my boss",
            "a neighbor",
        )
    )
    meal = r.choice(("breakfast", "lunch", "dinner", "snack", "dessert", "picnic"))
    diet = r.choice(
        (
            "for a vegetarian",
            "for someone with diabetes",
            "for a busy student",
            "for a large family",
            "without nuts",
            "that is quick to make",
            "with few ingredients",
            "for a hot day",
            "for athletes",
            "without gluten",
        )
    )
    party = r.choice(
        (
            "a birthday party",
            "a housewarming party",
            "a wedding",
            "a baby shower",
            "a farewell party",
            "a Halloween party",
            "a New Year's Eve party",
            "a school reunion",
            "a picnic",
            "a team event",
        )
    )
    trip = r.choice(
        (
            "a weekend trip",
            "a camping trip",
            "a beach holiday",
            "a business trip",
            "a ski trip",
            "a road trip",
            "a week in the mountains",
            "a long flight",
            "a day at the zoo",
            "a city break",
        )
    )
    return r.choice((
        f"How can I {g}?", f"How do I {g}?", f"Give me {n} tips to {g}.", f"What is the best way to {g}?", f"I want to {g}. Where should I start?", f"What are {n} ways to {g}?", f"I have been trying to {g}, but it is hard. Any advice?",
        f"How can I learn to {k}?", f"What do I need to {k}?", f"Give me {n} tips to {k} better.", f"How long does it take to learn to {k}?", f"I want to {k}. Make a plan for me.", f"Is it hard to {k}?",
        f"I feel {f} about {event}. What should I do?", f"I feel {f} today. What can I do?", f"I am {f} because of {event}.", f"How do I prepare for {event}?", f"My friend feels {f}. How can I help?", f"How do I stop feeling {f}?",
        f"How do I make {food}?", f"Give me a recipe for {food}.", f"What ingredients do I need for {food}?", f"What goes well with {food}?", f"Suggest a {meal} {diet}.", f"Plan a {meal} {diet}.", f"How do I make {food} healthier?",
        f"What should I pack for {trip}?", f"Plan {trip} to {place}.", f"What can I see in {place}?", f"What is {place} famous for?", f"What is the best time to visit {place}?", f"Plan a day in {place}.", f"What food should I try in {place}?",
        f"Give me ideas for {party}.", f"What is a good gift for {who}?", f"Suggest {n} games for {party}.", f"What should I wear to {party}?", f"Suggest a present for {who} who likes to {k}.", f"Recommend {n} hobbies for someone who likes {r.choice(V.SPORTS + V.ARTS)}.",
        f"Make a shopping list for {food}.", f"Make a weekly schedule to {g}.", f"What questions are asked in an interview for a job as a {r.choice(V.JOBS)}?", f"How do I become a {r.choice(V.JOBS)}?", f"What does a {r.choice(V.JOBS)} do?", f"Should I {g} or {r.choice(V.GOALS)} first?",
        f"How do I take care of a {r.choice(V.ANIMALS)}?", f"Is a {r.choice(V.ANIMALS)} a good pet?", f"What does a {r.choice(V.ANIMALS)} eat?",
    ))  # fmt: skip


def _creative(r: random.Random) -> str:
    j, j2 = r.sample(V.JOBS, 2)
    a, a2 = r.sample(V.ANIMALS, 2)
    p, o, ab = r.choice(V.PLACES), r.choice(V.OBJECTS), r.choice(V.ABSTRACT)
    nature = r.choice(
        (
            "spring",
            "summer",
            "autumn",
            "winter",
            "the sea",
            "the rain",
            "the wind",
            "snow",
            "the stars",
            "the moon",
            "a river",
            "a mountain",
            "a forest",
            "the morning",
            "the night",
            "flowers",
            "a storm",
            "the desert",
            "birds",
        )
    )
    mood = r.choice(
        (
            "funny",
            "sad",
            "scary",
            "short",
            "romantic",
            "mysterious",
            "happy",
            "surprising",
            "dramatic",
            "simple",
        )
    )
    end = r.choice(
        (
            "",
            "",
            "",
            " with a happy ending",
            " with a twist",
            " in the first person",
            " for children",
            " in five sentences",
            " set in the future",
        )
    )
    form = r.choice(
        ("poem", "haiku", "limerick", "song", "short poem", "rhyming poem", "sonnet", "free verse poem")
    )
    product = r.choice(V.PRODUCTS)
    return r.choice((
        f"Write a {mood} story about a {j} who finds {o}{end}.", f"Write a story about a {a} and a {a2}{end}.", f"Write a {mood} story that takes place in {p}{end}.", f"Tell me a {mood} story about {o}.", f"Write a fable about a {a} that teaches {ab}.",
        f"Write the beginning of a novel set in {p}.", f"Write the first paragraph of a {mood} story about a {j}.", f"Write a {form} about {nature}.", f"Write a {form} about {ab}.", f"Write a {form} about a {a}.", f"Write a {form} about a {j} and {o}.",
        f"Write a dialogue between a {j} and a {j2}.", f"Write a dialogue between a {a} and a {a2}.", f"Write a conversation between a {j} and a customer about {o}.", f"Write a monologue of a {j} in {p}.", f"Describe {p}.", f"Describe {nature} in a few sentences.",
        f"Describe {o} in detail.", f"Describe a {a} to someone who has never seen one.", f"Describe a {mood} day in {p}.", f"Write a product description for {product}.", f"Write an advertisement for {product}.", f"Write a slogan for {product}.", f"Write a customer review of {product}.",
        f"Invent a name and a slogan for a company that sells {product[2:].strip()}s.", f"Create a character who is a {j} and lives in {p}.", f"Write a diary entry of a {j}.", f"Write a letter from a {j} to a {j2}.", f"Write a bedtime story about a {a} in {p}.", f"Write a riddle about {o}.",
        f"Tell me a joke about a {j}.", f"Tell me a joke about a {a}.", f"Write a speech about {ab}.", f"Write a quote about {ab}.", f"Come up with {r.choice(('three', 'five', 'ten'))} names for a {a}.", f"Imagine you are a {j} in {p}. Describe your day.", f"What would a {a} say about {ab}?", f"Continue the story: The {j} opened the door of {p.split(' ', 1)[1]} and",
    ))  # fmt: skip


def _task(r: random.Random, sentences: list[str]) -> str:
    sentence = r.choice(sentences)
    two = " ".join(r.sample(sentences, 2)) if r.random() < 0.5 else sentence
    language = r.choice(V.LANGUAGES)
    person, book, country, city = (
        r.choice(V.PEOPLE),
        r.choice(V.BOOKS),
        r.choice(V.COUNTRIES),
        r.choice(V.CITIES),
    )
    who = r.choice(
        (
            "my boss",
            "my landlord",
            "a customer",
            "my teacher",
            "a colleague",
            "the bank",
            "a neighbor",
            "my team",
            "a hotel",
            "an airline",
            "the school",
            "my doctor",
            "a friend",
            "the city council",
            "a supplier",
        )
    )
    reason = r.choice(("asking for a day off", "asking for a refund", "asking for help", "apologizing for being late", "canceling an appointment", "confirming a meeting", "thanking them for their help", "complaining about noise", "reporting a problem", "asking for more time",
                       "inviting them to dinner", "declining an invitation", "asking for feedback", "announcing a new project", "asking about a delivery", "offering help", "asking for a reference", "rescheduling a call", "asking about the price", "introducing myself"))  # fmt: skip
    style = r.choice(("polite", "short", "formal", "friendly", "professional"))
    topic = r.choice(_TOPICS)
    review = r.choice(V.PRODUCTS)[2:].strip()
    n = r.choice(("three", "four", "five", "ten"))
    return r.choice((
        f"Translate the following sentence into {language}: '{sentence}'", f"Translate into {language}: {sentence}", f"Rewrite this sentence to make it more {r.choice(('formal', 'polite', 'concise', 'friendly', 'interesting', 'dramatic'))}: '{sentence}'", f"Correct the grammar of this sentence: {sentence.lower()}",
        f"Rewrite in the passive voice: {sentence}", f"Rewrite in the past tense: {sentence}", f"Turn this sentence into a question: {sentence}", f"Paraphrase: {sentence}", f"Explain this sentence in other words: '{sentence}'", f"What is the tone of this sentence: '{sentence}'?",
        f"Is the sentiment of this sentence positive, negative or neutral? '{sentence}'", f"Summarize in one sentence: {two}", f"Find the nouns in this sentence: {sentence}", f"Find the verb in this sentence: {sentence}", f"Continue this text: {sentence}", f"Write a paragraph that begins with: {sentence}",
        f"Write a {style} email to {who} {reason}.", f"Write a {style} message to {who} {reason}.", f"Write a letter to {who} {reason}.", f"Draft a {style} reply to {who} who wrote: '{sentence}'", f"Who was {person}?", f"Why is {person} famous?", f"Who was {person} and why is this person remembered?", f"Tell me about the life of {person}.",
        f"What did {person} do?", f"What can we learn from {person}?", f"Write a short biography of {person}.", f"Imagine an interview with {person}.", f"Summarize the plot of {book}.", f"Who are the main characters in {book}?", f"What is {book} about?", f"What is the message of {book}?", f"Write a review of {book}.",
        f"What is the capital of {country}?", f"What language is spoken in {country}?", f"What is the currency of {country}?", f"Tell me about the geography of {country}.", f"What are typical dishes from {country}?", f"What is the history of {city}?", f"Name {n} landmarks in {city}.", f"Describe the climate of {country}.",
        f"How does the government of {country} work?", f"What are famous festivals in {country}?", f"Name {n} {r.choice(('rivers', 'mountains', 'inventions', 'planets', 'animals that live in water', 'famous paintings', 'musical instruments', 'healthy foods', 'fruits', 'trees', 'board games', 'programming languages', 'world records', 'famous scientists', 'oceans and seas', 'desert animals', 'famous bridges'))} and say something about each.",
        f"Write {n} discussion questions about {topic}.", f"Give arguments for and against {topic}.", f"Write a headline for an article about {topic}.", f"Write a social media post about {topic}.", f"Create a lesson plan about {topic}.", f"Classify the following as positive or negative: 'The {review} broke after one day.'", f"Give me a synonym for '{r.choice(sentence.split()).strip('.,').lower()}'.",
        f"Use the word '{r.choice(sentence.split()).strip('.,').lower()}' in a sentence.", f"What rhymes with '{r.choice(V.ITEMS).split()[-1]}'?", f"Make a table of {n} {r.choice(('animals', 'countries', 'planets', 'foods', 'sports'))} with two properties each.", f"What is the opposite of {r.choice(V.ABSTRACT)}?", f"Which is larger, {r.choice(V.COUNTRIES)} or {r.choice(V.COUNTRIES)}?",
    ))  # fmt: skip


def _wordnet_prompt(r: random.Random, words: list[tuple[str, str]]) -> str:
    word, gloss = r.choice(words)
    other = r.choice(words)[0]
    article = "an" if word[0] in "aeiou" else "a"
    return r.choice((
        f"What is {article} {word}?", f"What does '{word}' mean?", f"Explain the word '{word}' and use it in a sentence.", f"Write a paragraph about {word}.", f"Tell me something interesting about {word}.", f"What is the difference between {word} and {other}?",
        f"How would you explain {word} to a child?", f"Write a short story with the words '{word}' and '{other}'.", f"Which word means '{gloss}'?", f"Give three synonyms for '{word}'.", f"Write a poem about {word}.", f"Where would you find {article} {word}?", f"Why is {word} important?", f"Describe {article} {word}.",
        f"What are the uses of {word}?", f"List some examples of {word}.", f"What is the history of {word}?", f"How are {word} and {other} related?", f"Give me five questions about {word}.", f"Write a dialogue about {word}.",
    ))  # fmt: skip


def builtin_sentences(r: random.Random, count: int = 4000) -> list[str]:
    """Plain sentences for rewriting tasks, from the word lists."""
    when = (
        "Yesterday",
        "Last week",
        "Every morning",
        "On Sunday",
        "In the evening",
        "After lunch",
        "Before the storm",
        "Last summer",
        "At midnight",
        "Next year",
    )
    made = []
    for _ in range(count):
        a, b = r.sample(V.NAMES, 2)
        j, p, o, an, f = (
            r.choice(V.JOBS),
            r.choice(V.PLACES),
            r.choice(V.OBJECTS),
            r.choice(V.ANIMALS),
            r.choice(V.FOODS),
        )
        made.append(r.choice((
            f"{r.choice(when)}, {a} met {b} in {p}.", f"The {j} gave {a} {o}.", f"{a} is going to cook {f} for {b}.", f"The {an} slept under the table while {a} was reading.", f"{a} wants to {r.choice(V.SKILLS)} but has no time.",
            f"I can't believe the {j} forgot {o}.", f"We have to {r.choice(V.GOALS)} before the end of the year.", f"{r.choice(when)} the {j} walked through {p}.", f"Could you bring me {o}, please?", f"The meeting about {r.choice(V.ECONOMY)} starts at {r.randint(8, 18)}.",
            f"{a} moved to {r.choice(V.CITIES)} because of a new job.", f"Nobody knew why {b} left {r.choice(V.COUNTRIES)}.", f"The weather in {r.choice(V.CITIES)} was terrible.", f"{a} and {b} talked about {r.choice(V.ABSTRACT)} for hours.", f"My {r.choice(('brother', 'sister', 'uncle', 'aunt', 'cousin'))} works as a {j}.",
            f"The train to {r.choice(V.CITIES)} leaves in {r.randint(5, 50)} minutes.", f"She bought {o} for her {r.choice(('mother', 'father', 'friend'))}.", f"There is a {an} in the garden.", f"He has been learning {r.choice(V.LANGUAGES)} for {r.randint(2, 9)} years.", "The food was good, but the service was slow.",
        )))  # fmt: skip
    return made


def read_wordnet(folder: Path) -> tuple[list[tuple[str, str]], list[str]]:
    """Nouns that WordNet's own sense counts call used, with gloss, and its example sentences.

    ``folder`` holds ``data.*`` and ``index.noun`` (Princeton WordNet 3.x).
    """
    used = set()
    for line in (folder / "index.noun").read_text(encoding="utf-8").splitlines():
        if not line.startswith(" "):
            lemma, _, _, pointers, *rest = line.split()
            if int(rest[int(pointers) + 1]) > 0:  # how many of the senses are tagged in texts
                used.add(lemma)
    words, sentences = [], []
    for part in ("noun", "verb", "adj", "adv"):
        for line in (folder / f"data.{part}").read_text(encoding="utf-8").splitlines():
            if line.startswith(" "):
                continue
            head, _, gloss = line.partition(" | ")
            fields = head.split()
            word = fields[4].replace("_", " ").lower()
            sentences += [
                s[0].upper() + s[1:] + ("" if s[-1] in ".?!" else ".")
                for s in re.findall(r'"([^"]{25,110})"', gloss)
                if s.count(" ") >= 4
            ]
            if part == "noun" and fields[4] in used and fields[4].islower() and len(word) > 2:
                words.append((word, gloss.split(";")[0].strip()[:120]))
    return words, sentences


def chat_prompts(r: random.Random, words: list[tuple[str, str]], sentences: list[str]) -> Iterator[str]:
    """Explanations 33 %, advice 23 %, writing 20 %, tasks on texts, people and places 17 %, WordNet words 7 %."""
    while True:
        u = r.random()
        if u < 0.33:
            yield _explain(r)
        elif u < 0.56:
            yield _advice(r)
        elif u < 0.76:
            yield _creative(r)
        elif u < 0.93 or not words:
            yield _task(r, sentences)
        else:
            yield _wordnet_prompt(r, words)


def vary(r: random.Random, prompt: str) -> str:
    """Small changes of form in a tenth of the prompts: a polite opening, a missing full stop, lower case."""
    u = r.random()
    if u < 0.04 and prompt[:5] in (
        "Write",
        "Expla",
        "Give ",
        "Descr",
        "Creat",
        "List ",
        "Tell ",
        "Summa",
        "Sugge",
    ):
        opening = r.choice(CAPITAL_AFTER[1:5])
        body = prompt[0].lower() + prompt[1:]
        return f"{opening}{body.rstrip('.')}{'?' if opening.startswith('C') else '.'}"
    if u < 0.06:
        return r.choice(CAPITAL_AFTER[5:]) + prompt
    if u < 0.08 and "```" not in prompt:
        return prompt.rstrip(".?")
    if u < 0.10 and "```" not in prompt:
        return prompt[0].lower() + prompt[1:]
    return prompt

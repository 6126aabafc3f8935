#!/usr/bin/env python3
"""Prints the rows of a benchmark run as a table. A file is a JSON list of rows {"name", "figure", "unit", "goal", "better"};
better is "higher" or "lower", goal may be null. With --check lists the rows short of their goal and fails if there are any."""

import argparse
import json
import sys


def short_of_goal(row):
    if row.get("goal") is None:
        return False
    return row["figure"] < row["goal"] if row["better"] == "higher" else row["figure"] > row["goal"]


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--check", action="store_true")
    parser.add_argument("files", nargs="+")
    arguments = parser.parse_args()
    rows = []
    for name in arguments.files:
        with open(name, encoding="utf-8") as file:
            rows += json.load(file)

    width = max([len(row["name"]) for row in rows], default=4)
    print(f"\n{'name':<{width}}  {'figure':>12}  {'unit':<10}  {'goal':>10}")
    for row in rows:
        goal = "" if row.get("goal") is None else f"{'>=' if row['better'] == 'higher' else '<='} {row['goal']:.4g}"
        mark = "  short" if short_of_goal(row) else ""
        print(f"{row['name']:<{width}}  {row['figure']:>12.4g}  {row['unit']:<10}  {goal:>10}{mark}")

    short = [row["name"] for row in rows if short_of_goal(row)]
    if arguments.check:
        print(f"\n{len(rows)} rows, {len(short)} short of their goal" + "".join(f"\n  {name}" for name in short))
        return 1 if short or not rows else 0
    return 0


if __name__ == "__main__":
    sys.exit(main())

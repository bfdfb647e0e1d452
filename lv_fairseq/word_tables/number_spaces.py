"""The three kinds of numbers that stand for words, each a type of its own, so that a checker sees them mixed up.

Everybody speaks word numbers. Page rows and list columns mean something to a word table only, which translates.
"""

from typing import NewType

from torch import Tensor

WordNumbers = NewType("WordNumbers", Tensor)  # numbers of a dictionary: what data, criteria and hypotheses hold
PageRows = NewType("PageRows", Tensor)  # rows of what trains
ListColumns = NewType("ListColumns", Tensor)  # columns of scores over candidate lists: what a search holds

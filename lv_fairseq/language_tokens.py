"""What tasks of many languages have in common: dictionaries that end with a token for each language."""

from typing import List

from lv_fairseq import fairseq_patches, opening
from lv_fairseq.large_vocabulary import LargeVocabulary


class LanguageTokens(LargeVocabulary):
    """To be mixed into a task whose ``langs`` are all languages, in the order of their tokens.

    Tokens of languages are on every page. On a list is that of the target language alone, so that no translation has
    that of another one.
    """

    def tokens(self, language: str) -> List[str]:
        """Those of a language."""
        raise NotImplementedError

    def source_dictionaries(self) -> List:
        return [self.source_dictionary]

    def target_dictionaries(self) -> List:
        return [self.target_dictionary]

    def marks(self, dictionary) -> List[int]:
        tokens = [token for language in self.langs for token in self.tokens(language)]
        every = (*tokens, *opening.MASK, *opening.TAGS)
        return [dictionary.indices[word] for word in every if word in dictionary.indices]

    def complete_dictionaries(self) -> None:
        opened = opening.look_at(fairseq_patches.opening.get() or opening.checkpoint_of(self.cfg))
        sides = self.source_dictionaries(), self.target_dictionaries()
        for rows, dictionaries in zip(opened.rows if opened is not None else (), sides):
            for dictionary in dictionaries if rows is not None else ():
                opening.complete(dictionary, rows, opened, lambda language: self.tokens(language)[0])

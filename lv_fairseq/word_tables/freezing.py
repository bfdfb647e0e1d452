"""The paper's last stage: word vectors stay as they are, the rest of the model is tuned."""

from torch import nn

from lv_fairseq.word_tables.table import Tables


def freeze(model: nn.Module, tables: Tables) -> None:
    """Fix the word vectors. Parameters remember their place, so that an optimiser's checkpoint can still be read."""
    parameters = [parameter for parameter in model.parameters() if parameter.requires_grad]  # those an optimiser knows
    for number, parameter in enumerate(parameters):
        parameter.place = number, len(parameters)
    for table in tables:
        table.requires_grad_(False)

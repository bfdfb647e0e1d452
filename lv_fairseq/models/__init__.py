"""The architectures that fairseq finds here: `fairseq.utils.import_user_module` imports every file of this folder."""

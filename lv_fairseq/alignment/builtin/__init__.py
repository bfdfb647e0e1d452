"""The built-in aligner: fast_align's model (Dyer et al. 2013), command line and file formats, in numpy.

Is run by the path of this folder, as a program of its own, so that it needs nothing else of ``lv_fairseq``.
"""

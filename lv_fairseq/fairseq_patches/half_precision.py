"""Half precision: where fairseq's optimisers for it take all parameters for halves, lose bits or scale twice."""

import importlib.util

import torch
from fairseq import options
from fairseq.distributed import LegacyDistributedDataParallel
from fairseq.optim import AMPOptimizer, FP16Optimizer, MemoryEfficientFP16Optimizer
from fairseq.trainer import Trainer

MASTERS, COUNTS = "master_copies", "loss_scaler"  # in an optimiser's checkpoint


def leave_single_precision_alone() -> None:
    """Let ``--fp16`` and ``--bf16`` train a parameter that is in single precision, such as a page of words, as it is.

    fairseq trains copies in single precision, of which the model gets rounded ones. A copy of what is not rounded would
    only get out of step with it, and in the one long vector that fairseq makes of all of them nothing has rows. That
    vector is also on a GPU always, even if there is none.
    """
    build, copies = FP16Optimizer.build_optimizer.__func__, FP16Optimizer.build_fp32_params.__func__

    def build_unflattened(cls, cfg, params, **kwargs):
        if any(parameter.dtype == torch.float32 or not parameter.is_cuda for parameter in params):
            cfg.common.fp16_no_flatten_grads = True
        return build(cls, cfg, params, **kwargs)

    def copy_halves(cls, args, params, flatten=True):
        if flatten:
            return copies(cls, args, params, flatten)
        return [p if p.dtype == torch.float32 else copy(cls, args, p) for p in params]

    def copy(cls, args, parameter):
        (master,) = copies(cls, args, [parameter], flatten=False)
        vars(master).update(vars(parameter))  # what is known of it
        return master

    FP16Optimizer.build_optimizer = classmethod(build_unflattened)
    FP16Optimizer.build_fp32_params = classmethod(copy_halves)


def resume_exactly() -> None:
    """Save what fairseq forgets: the bits by which master copies differ from the rounded parameters, and for how long
    the loss has been scaled as it is.

    A parameter that is no longer what its master copy was rounded to, an average of checkpoints say, is copied anew.
    """

    def masters(optimizer) -> list:
        if getattr(optimizer, "fp32_params", None) is None or optimizer.has_flat_params:
            return []
        return [(p, master) for p, master in zip(optimizer.fp16_params, optimizer.fp32_params) if p is not master]

    def counts(optimizer) -> dict:
        if isinstance(optimizer, AMPOptimizer):
            return optimizer.scaler.state_dict()
        return {} if optimizer.scaler is None else vars(optimizer.scaler)

    def save(give):
        def state_dict(self):
            return {**give(self), COUNTS: dict(counts(self)), MASTERS: [master.data for _, master in masters(self)]}

        return state_dict

    def restore(take):
        def load_state_dict(self, state_dict, optimizer_overrides=None):
            take(self, state_dict, optimizer_overrides)
            if counts(self) and state_dict.get(COUNTS):
                restore_counts(self, state_dict[COUNTS])
            copies, saved = masters(self), state_dict.get(MASTERS, [])
            for (parameter, master), before in zip(copies, saved if len(copies) == len(saved) else []):
                if before.shape == master.shape:
                    before = before.to(master)
                    master.data.copy_(torch.where(before.to(parameter) == parameter, before, master))

        return load_state_dict

    def restore_counts(optimizer, saved: dict) -> None:
        if isinstance(optimizer, AMPOptimizer):
            optimizer.scaler.load_state_dict(saved)
        else:  # what was counted, while limits are those of this run
            vars(optimizer.scaler).update({name: value for name, value in saved.items() if name.startswith("_")})

    for kind in (FP16Optimizer, MemoryEfficientFP16Optimizer, AMPOptimizer):
        kind.state_dict, kind.load_state_dict = save(kind.state_dict), restore(kind.load_state_dict)


def load_statistics_as_saved() -> None:
    """Let ``--memory-efficient-fp16`` keep an optimiser's statistics in the precision they were saved in.

    torch rounds them to that of their parameters. fairseq then puts those of the file back, of all words where the
    parameter is a page, whatever the optimiser's own hooks have made of them.
    """
    load = MemoryEfficientFP16Optimizer.load_state_dict

    def load_unrounded(self, state_dict, optimizer_overrides=None):
        optimizer, taken = self.optimizer, {}
        optimizer.disable_mem_eff_fp16_loading_hack = True  # fairseq's name for what it does
        after_all_others = optimizer.register_load_state_dict_pre_hook(lambda _, state: taken.update(state))
        try:
            load(self, state_dict, optimizer_overrides)
        finally:
            after_all_others.remove()
        for group, saved in zip(optimizer.param_groups, taken["param_groups"]):
            for parameter, number in zip(group["params"], saved["params"]):
                state = optimizer.state[parameter] if number in taken["state"] else {}
                for name, value in state.items():
                    before = taken["state"][number][name]
                    if torch.is_tensor(value) and value.dtype != before.dtype:
                        state[name] = before.to(value.device)

    MemoryEfficientFP16Optimizer.load_state_dict = load_unrounded


def share_gradients_unrounded() -> None:
    """Let workers (``--ddp-backend legacy_ddp``) add up gradients in the highest precision that any has, which takes
    all others along. fairseq adds them up in that of the first parameter, which may be half while pages are single."""
    reduce = LegacyDistributedDataParallel.all_reduce_grads

    def all_reduce_grads(self) -> None:
        if self.buffer is None:
            parameters = list(self.module.parameters())
            highest = max((parameter.dtype for parameter in parameters), key=lambda dtype: dtype.itemsize)
            self.buffer = parameters[0].new_empty(self.buffer_size, dtype=highest)
        reduce(self)

    LegacyDistributedDataParallel.all_reduce_grads = all_reduce_grads


def unscale_once() -> None:
    """Let ``--amp`` divide gradients by the scale of the loss once.

    Before they are clipped, fairseq has torch's scaler divide those of one object, its torch optimiser, and then step
    with another, its wrapper, of which the scaler does not know that its gradients are divided already: 3.0 would
    reach the optimiser as 3/128.
    """

    def step(self) -> None:
        self.scaler.step(self.optimizer)
        self.scaler.update()

    AMPOptimizer.step = step


def need_no_tpu_for_bf16() -> None:
    """Let ``--bf16`` mean bfloat16 on a GPU or CPU, where fairseq's command line means a TPU and would look for one."""
    parse = options.parse_args_and_arch

    def parse_args(*args, **kwargs):
        parsed = parse(*args, **kwargs)
        flags = parsed[0] if isinstance(parsed, tuple) else parsed
        if getattr(flags, "bf16", False) and importlib.util.find_spec("torch_xla") is None:
            flags.tpu = False
        return parsed

    options.parse_args_and_arch = parse_args


def skip_overflows_on_a_cpu() -> None:
    """Let ``--fp16`` leave out an update whose gradients are too large, and scale the loss down, on a CPU too: fairseq
    then puts a zero on a GPU, and ends if there is none."""
    train = Trainer.train_step

    def train_step(self, samples, raise_oom=False):
        try:
            return train(self, samples, raise_oom)
        except (AssertionError, RuntimeError) as error:  # torch's, without CUDA or without a GPU
            if torch.cuda.is_available() or not isinstance(error.__context__, OverflowError):
                raise
            self.zero_grad()
            return None

    Trainer.train_step = train_step

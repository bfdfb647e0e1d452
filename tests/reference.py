"""RNNsearch in plain numpy, one sentence and one word at a time: written from the equations, sharing no code."""

import numpy as np


def sigmoid(x):
    return 1 / (1 + np.exp(-x))


def gru(x, h, w):
    """w: W_r, W_u, W, U_r, U_u, U, b with vectors multiplied from the left."""
    r = sigmoid(x @ w["W_r"] + h @ w["U_r"])
    u = sigmoid(x @ w["W_u"] + h @ w["U_u"])
    candidate = np.tanh(x @ w["W"] + (r * h) @ w["U"] + w["b"])
    return u * candidate + (1 - u) * h


def torch_gru(x, h, w):
    """torch's variant, as the documentation of torch.nn.GRU writes it, with its z = 1 - u turned round."""
    r = sigmoid(x @ w["W_r"] + h @ w["U_r"] + w["b_r"])
    u = sigmoid(x @ w["W_u"] + h @ w["U_u"] + w["b_u"])
    candidate = np.tanh(x @ w["W"] + w["b"] + r * (h @ w["U"] + w["b_h"]))
    return u * candidate + (1 - u) * h


def translate_scores(weights, source, target, unit=gru):
    """Scores of every target word at every position, and the attention, for one sentence without padding.

    source: word numbers; target: the words y_1 ... y_n whose predictions are wanted.
    """
    w = weights
    x = w["source words"][source] + w["source bias"]
    n = len(source)
    forward, backward = [None] * n, [None] * n
    h = np.zeros(w["forward"]["U"].shape[0])
    for j in range(n):
        h = forward[j] = unit(x[j], h, w["forward"])
    h = np.zeros_like(h)
    for j in reversed(range(n)):
        h = backward[j] = unit(x[j], h, w["backward"])
    annotations = np.array([np.concatenate([f, b]) for f, b in zip(forward, backward)])

    s = np.tanh(backward[0] @ w["initial"] + w["initial bias"])
    previous = np.zeros(w["target words"].shape[1])  # E y_0
    scores, attention = [], []
    for word in target:
        # look
        e = np.array([np.tanh(s @ w["A"] + h_j @ w["B"]) @ w["v"] for h_j in annotations])
        alpha = np.exp(e - e.max()) / np.exp(e - e.max()).sum()
        c = sum(a * h_j for a, h_j in zip(alpha, annotations))
        # generate
        readout = s @ w["R_s"] + previous @ w["R_y"] + c @ w["R_c"] + w["R_b"]
        maxout = np.maximum(readout[0::2], readout[1::2])
        scores.append(w["output words"] @ (maxout @ w["R_o"]) + w["output bias"])
        attention.append(alpha)
        # update: the products of c have no bias of their own
        previous = w["target words"][word] + w["target bias"]
        s = unit(np.concatenate([previous, c]), s, w["decoder"])
    return np.array(scores), np.array(attention)


def weights_of(model) -> dict:
    """The model's parameters under the names of the equations, from its checkpoint."""
    p = {name: value.detach().double().numpy() for name, value in model.state_dict().items()}

    def split(input, recurrent, **more):
        hidden = recurrent[0].shape[0]
        w_r, w_u, w = np.split(input, [hidden, 2 * hidden], axis=1)
        u_r, u_u, u = np.split(np.concatenate(recurrent, axis=1), [hidden, 2 * hidden], axis=1)
        return dict(W_r=w_r, W_u=w_u, W=w, U_r=u_r, U_u=u_u, U=u, **more)

    weights = {
        "source words": p["encoder.embed_tokens.weight"],
        "source bias": p["encoder.embed_bias"],
        "target words": p["decoder.embed_tokens.weight"],
        "target bias": p["decoder.embed_bias"],
        "output words": p["decoder.output_projection.weight"],
        "output bias": p["decoder.output_projection.bias"],
        "initial": p["encoder.initial_state"],
        "initial bias": p["encoder.initial_bias"],
        "A": p["decoder.attention.query"],
        "B": p["encoder.keys"],
        "v": p["decoder.attention.v"],
        "R_s": p["decoder.readout.state"],
        "R_y": p["decoder.readout.word"],
        "R_c": p["encoder.readout_products"],
        "R_b": p["decoder.readout.bias"],
        "R_o": p["decoder.readout.output"],
    }
    read = np.concatenate([p["decoder.gru.input"], p["encoder.state_products"]])
    if "decoder.gru.gates" in p:
        for k, name in enumerate(("forward", "backward")):
            gates, candidate = p["encoder.gru.unit.gates"][k], p["encoder.gru.unit.candidate"][k]
            bias = p["encoder.gru.unit.bias"][k, 0]
            weights[name] = split(p["encoder.gru.unit.input"][k], (gates, candidate), b=bias)
        recurrent = (p["decoder.gru.gates"], p["decoder.gru.candidate"])
        weights["decoder"] = split(read, recurrent, b=p["decoder.gru.bias"][0])
        return weights
    for name, suffix in (("forward", ""), ("backward", "_reverse")):
        unit = {k: p[f"encoder.gru.unit.{k}_l0{suffix}"] for k in ("weight_ih", "weight_hh", "bias_ih", "bias_hh")}
        hidden = unit["weight_hh"].shape[1]
        # torch's update gate keeps what the paper's replaces: u = 1 - z = sigmoid(-z's argument)
        sign = np.repeat([1, -1, 1], hidden)
        b_i, b_h = unit["bias_ih"] * sign, unit["bias_hh"] * sign
        (b_r, b_u, b), (bh_r, bh_u, b_candidate) = np.split(b_i, 3), np.split(b_h, 3)
        biases = dict(b_r=b_r + bh_r, b_u=b_u + bh_u, b=b, b_h=b_candidate)
        weights[name] = split(unit["weight_ih"].T * sign, (unit["weight_hh"].T * sign,), **biases)
    b_r, b_u, b = np.split(p["decoder.gru.input_bias"], 3)
    biases = dict(b_r=b_r, b_u=b_u, b=b, b_h=p["decoder.gru.recurrent_bias"])
    weights["decoder"] = split(read, (p["decoder.gru.recurrent"],), **biases)
    return weights

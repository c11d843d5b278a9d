/* recurrent.h - the matrices of a recurrent network, of which its weights consist. */
#ifndef SC_CUDNN_RECURRENT_H
#define SC_CUDNN_RECURRENT_H
#include "simcuda/cudnn/descriptors.h"

bool sc_dnn_is_rnn(const struct sc_dnn_rnn *rnn);

/* Gates of a cell, each with a matrix for the input and one for the state. */
int sc_dnn_count_gates(const struct sc_dnn_rnn *rnn);

/* What a direction of a layer reads: the network's input, or the outputs of all directions of the layer before. */
int sc_dnn_find_input_size(const struct sc_dnn_rnn *rnn, int layer);

/* Elements of all matrices of a direction of a layer. */
double sc_dnn_count_matrix_elements(const struct sc_dnn_rnn *rnn, int layer);

#endif

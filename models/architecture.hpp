// SPDX-License-Identifier: Apache-2.0
// What an Architecture is: a few layer descriptions and the order in which they follow each other. Private to models/.
//
// A family of models is one function that fills a Transformer (families.hpp). `architecture_of` turns it into layer descriptions;
// `emit` (layers.hpp) turns a layer description into parameters, modules, work and tensors. Everything else is derived.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "models/model.hpp"

namespace shardsim {

enum class NormKind : std::uint8_t {
  none,
  layer,               ///< LayerNorm with weight and bias
  layer_without_bias,  ///< LayerNorm with weight
  layer_plain,         ///< LayerNorm without parameters, computed in fp32 (OLMo)
  rms,                 ///< RMSNorm with weight, as transformers computes it: fp32 inside, weight applied in the compute dtype
  rms_fp32_weight,     ///< RMSNorm with the weight applied in fp32 (Gemma)
};

enum class Activation : std::uint8_t {
  silu,
  gelu,            ///< one kernel
  gelu_composite,  ///< "gelu_new" of transformers: eight kernels, four tensors kept
  relu,            ///< keeps its output, which the next product keeps anyway
  tanh,            ///< keeps its output
  other,           ///< one kernel that keeps its input
};

struct AttentionSpec {
  enum class Projection : std::uint8_t { separate, fused, latent };
  Projection projection = Projection::separate;
  std::int64_t heads = 0, kv_heads = 0;
  std::int64_t head_dim = 0;    ///< of queries and keys
  std::int64_t value_dim = 0;   ///< of values
  std::int64_t query_rank = 0;  ///< latent: rank of the query's low-rank projection; 0: one full projection
  std::int64_t kv_rank = 0;     ///< latent: rank of keys and values
  std::int64_t rope_dim = 0;    ///< latent: the part of head_dim that carries positions
  bool qkv_bias = false, out_bias = false, latent_bias = false;
  bool transposed = false;           ///< weights stored (in, out): Conv1D of GPT-2
  bool k_bias = true;                ///< where qkv_bias: Whisper's keys have none
  bool sinks = false;                ///< one learned logit a head beside the scores (gpt-oss)
  bool output_gate = false;          ///< the query projection makes a gate for the output, too (Qwen3-Next)
  bool own_keys = true;              ///< false: keys and values are those of an earlier layer (Gemma 3n)
  std::int64_t bias_rows = 0;        ///< rows of a learned table of relative positions, one column a head; 0: none
  std::string_view bias_table = "";  ///< its name
  NormKind qk_norm = NormKind::none;
  bool qk_norm_over_all_heads = false;
  bool rotary = true;
  bool causal = true;
  std::int64_t window = 0;      ///< tokens each query sees; 0: all
  bool softmax_in_fp32 = true;  ///< plain attention: softmax in fp32, then cast back
};

struct MlpSpec {
  std::int64_t width = 0;
  bool gated = true;
  bool fused_gate_up = false;
  bool bias = false;
  bool transposed = false;
  Activation activation = Activation::silu;
};

struct MoeSpec {
  std::int64_t experts = 0, top_k = 0;
  std::int64_t width = 0;
  std::int64_t shared_width = 0;  ///< 0: no shared expert
  bool shared_gate = false;       ///< the shared expert's output is weighted by a sigmoid (Qwen2-MoE)
  bool down_before_up = false;    ///< registration order of an expert's matrices (Mixtral: w1, w2, w3)
  bool bias = false;              ///< experts and router have biases (gpt-oss)
  bool correction_bias = false;   ///< e_score_correction_bias: counted, moved by a rule and not by a gradient (DeepSeek-V3)
  Activation activation = Activation::silu;
};

/// How branches and norms stand to the residual stream.
enum class Residual : std::uint8_t {
  pre,       ///< x + f(norm(x)), twice
  sandwich,  ///< x + norm(f(norm(x))), twice (Gemma 2 and 3)
  branch,    ///< x + norm(f(x)), twice (OLMo 2)
  parallel,  ///< x + attention(norm(x)) + mlp(norm(x))
  post,      ///< norm(x + f(x)), twice (BERT)
};

/// A token mixer that carries a state along the sequence: Mamba, Mamba-2, the gated delta rule, lightning attention. What differs between
/// them is data: projections, the causal convolution, vectors and norms beside them, and the sizes of the scan.
struct ScanSpec {
  struct Projection {
    std::string_view name;
    std::int64_t in = 0, out = 0;
    bool bias = false;
  };
  std::string_view name = "mixer";
  std::vector<Projection> in;                                                      ///< of the block's input
  std::vector<Projection> inner;                                                   ///< of the convolved stream (Mamba's x_proj, dt_proj)
  std::vector<std::pair<std::string_view, std::vector<std::int64_t>>> parameters;  ///< A_log, D, dt_bias
  std::vector<std::pair<std::string_view, std::int64_t>> inner_norms;              ///< RMSNorms on parts of the inner projections (Jamba)
  std::int64_t channels = 0, kernel = 0;                                           ///< of the convolution; 0: none
  bool convolution_bias = false;
  std::int64_t heads = 1, head_dim = 1, state = 1, groups = 1, chunk = 0;  ///< chunk 0: a scan token by token (Mamba 1)
  std::int64_t width = 0;                                                  ///< of the mixer's output before the last projection
  std::string_view norm = "";                                              ///< RMSNorm before the last projection
  std::int64_t norm_size = 0;
  Projection out;
};

/// PyTorch's names of the modules of a block. The defaults are Llama's.
struct BlockNames {
  std::string_view attention = "self_attn", mlp = "mlp";
  std::string_view attention_norm = "input_layernorm", mlp_norm = "post_attention_layernorm";
  std::string_view after_attention_norm = "", after_mlp_norm = "";
  std::string_view q = "self_attn.q_proj", k = "self_attn.k_proj", v = "self_attn.v_proj", qkv = "", out = "self_attn.o_proj";
  std::string_view q_norm = "self_attn.q_norm", k_norm = "self_attn.k_norm";
  std::string_view gate = "mlp.gate_proj", up = "mlp.up_proj", gate_up = "", down = "mlp.down_proj";
  std::string_view router = "mlp.gate", experts = "mlp.experts";
  std::string_view expert_gate = "gate_proj", expert_up = "up_proj", expert_down = "down_proj";
  std::string_view shared = "mlp.shared_expert", shared_gate = "mlp.shared_expert_gate";
  std::string_view cross = "encoder_attn", cross_norm = "encoder_attn_layer_norm";
  std::string_view cross_q = "encoder_attn.q_proj", cross_k = "encoder_attn.k_proj", cross_v = "encoder_attn.v_proj",
                   cross_out = "encoder_attn.out_proj";
};

struct BlockSpec {
  std::int64_t hidden = 0;
  AttentionSpec attention;
  std::variant<MlpSpec, MoeSpec> mlp;
  NormKind norm = NormKind::rms;
  Residual residual = Residual::pre;
  bool one_norm = false;               ///< parallel: one norm feeds both branches
  bool norms_first = true;             ///< parallel: both norms run before the branches; else the second after attention (GPT-NeoX)
  std::optional<ScanSpec> scan;        ///< in place of attention, or
  bool scan_beside_attention = false;  ///< next to it on the same input (Falcon-H1)
  std::optional<AttentionSpec> cross;  ///< attention to the encoder's output, after self-attention
  bool feed_forward = true;
  /// Parameters of parts that are not modelled one by one (Gemma 3n's AltUp and LAuReL): matrices multiply each token.
  std::vector<std::pair<std::string_view, std::vector<std::int64_t>>> extras;
  BlockNames names;
};

struct EmbeddingSpec {
  std::int64_t hidden = 0, vocabulary = 0;
  std::string_view tokens = "model.embed_tokens";
  std::int64_t width = 0;  ///< of the token table where it is not `hidden`; then `project_in` widens it
  std::string_view project_in = "";
  std::int64_t positions = 0;  ///< rows of the learned position table; 0: none
  std::string_view position_table = "";
  std::int64_t types = 0;
  std::string_view type_table = "";
  NormKind norm = NormKind::none;
  std::string_view norm_name = "";
  bool scaled = false;     ///< multiplied by sqrt(hidden) (Gemma)
  std::string tied_to;     ///< the token table is this parameter (T5's decoder)
  std::int64_t input = 0;  ///< elements a sequence that an encoder or a vision tower before it hands over; 0: it is the first layer
  /// Tables and projections next to the token table (Gemma 3n): full names and shapes.
  std::vector<std::pair<std::string_view, std::vector<std::int64_t>>> extras;
  bool dropout = false;
};

/// Patches of an image as tokens, with a class token in front where there is one.
struct PatchSpec {
  std::int64_t hidden = 0, channels = 3, image = 224, patch = 16, temporal = 1;
  bool bias = true, class_token = true;
  std::int64_t positions = -1;  ///< rows of the position table; -1: one a token; 0: none
  bool flat_positions = false;  ///< the table is (rows, hidden), not (1, rows, hidden)
  std::string_view prefix = "vit.embeddings";
  std::string_view class_name = "cls_token", position_name = "position_embeddings", projection = "patch_embeddings.projection";
  NormKind norm = NormKind::none;
  std::string_view norm_name = "";
  [[nodiscard]] std::int64_t patches() const { return (image / patch) * (image / patch); }
  [[nodiscard]] std::int64_t tokens() const { return patches() + (class_token ? 1 : 0); }
};

struct HeadSpec {
  enum class Over : std::uint8_t { tokens, first_token, mean };
  std::int64_t hidden = 0;
  NormKind norm = NormKind::none;
  std::string_view norm_name = "";
  std::int64_t width = 0;  ///< input width of the head where it is not `hidden`; then `project_out` narrows to it
  std::string_view project_out = "";
  std::string_view name = "lm_head";
  std::int64_t outputs = 0;
  bool bias = false;
  std::string tied_to{};  ///< name of the parameter that is also this weight
  Over over = Over::tokens;
  bool tanh = false;  ///< BERT's pooler
  /// A layer between the norm and the outputs: dense, activation, norm (masked-LM heads, RoBERTa's and ModernBERT's classifiers), or
  /// BERT's pooler before a classifier.
  std::string_view dense = "", dense_norm_name = "";
  bool dense_bias = true;
  NormKind dense_norm = NormKind::none;
  Activation dense_activation = Activation::gelu;
  std::string_view bias_name = "";  ///< of the outputs' bias where it is not <name>.bias
  std::string_view pooler = "";     ///< BERT's pooler, next to a head on every token
  std::string_view beside = "";     ///< another linear layer on the first token (next-sentence prediction)
  std::int64_t beside_outputs = 0;
  bool softcap = false;  ///< logits pass through cap * tanh(logits / cap) (Gemma 2)
};

struct LossSpec {
  std::int64_t width = 0;   ///< elements a row: classes, or features where the model ends in no logits
  bool classes = true;      ///< cross-entropy over classes; else one kernel on the features
  bool over_tokens = true;  ///< a row is a token, else a sequence
};

/// One item of an inline list.
struct InlineModule {
  enum class Kind : std::uint8_t { linear, conv2d, norm, embedding, activation, attention, shapes };
  Kind kind = Kind::shapes;
  std::string name{};
  std::int64_t in = 0, out = 0;  ///< of linear and conv2d; embedding: rows and columns; norm: out
  std::int64_t kernel_height = 1, kernel_width = 1, groups = 1;
  std::int64_t output_height = 0, output_width = 0;
  bool bias = false;
  std::vector<std::pair<std::string, std::vector<std::int64_t>>> shapes{};
  std::int64_t heads = 0, kv_heads = 0, head_dim = 0, window = 0;  ///< of attention; in and out are its width
  bool causal = true;
  std::string tied_to{};   ///< of linear: the parameter that is also this weight
  bool multiplies = true;  ///< of shapes: matrices multiply each token
};
/// `input` is the elements a token that the layer before hands over; 0: nothing that needs a gradient.
struct InlineSpec {
  std::int64_t input = 0;
  std::vector<InlineModule> modules{};
};

struct LayerSpec {
  std::string name;  ///< of the type: "llama block"
  bool block = false;
  std::variant<EmbeddingSpec, PatchSpec, BlockSpec, HeadSpec, LossSpec, InlineSpec> what;
  std::vector<std::string_view> registration;  ///< module names in registration order where it is not the order of use
  std::int64_t sequence = 0;  ///< tokens of a sequence here where it is not the training's (images, sound); 0: the training's
  std::int64_t pieces = 1;    ///< sequences of that length a sample (windows of an image)
};

struct LayerInstance {
  std::string name;  ///< "model.layers.3"
  std::int32_t spec = 0;
  bool prefixed = true;  ///< parameter names start with `name`
};

/// LoRA adapters beside the linear modules whose name ends in one of `targets`.
struct Adaptation {
  std::int64_t rank = 0;
  std::vector<std::string> targets;
  double dropout = 0;
  std::optional<DType> dtype{};  ///< empty: the model's
};

/// Parameters and layers, derived from the layer descriptions.
struct Tables {
  std::shared_ptr<const std::vector<Parameter>> parameters;
  std::shared_ptr<const std::vector<Layer>> layers;  ///< Layer::type indexes Architecture::specs
  std::vector<ParameterId> tied;
  std::vector<std::vector<std::int32_t>> local;  ///< by spec: registration index of the i-th parameter in order of use
};

/// How a checkpoint stores its linear weights (quantization_config).
struct Quantization {
  std::string method;                ///< "bitsandbytes 4-bit (nf4)"
  double bytes = 1;                  ///< a weight, with its share of the scales
  bool trainable = false;            ///< its weights can train whole: they are converted back first (fp8 checkpoints)
  std::vector<std::string> skipped;  ///< modules that stay as they are, the head always
};

struct Architecture {
  std::string name, family;
  std::optional<Quantization> quantization;
  std::vector<std::string> warnings;
  std::int64_t learned_positions = 0;  ///< longest sequence; 0: any
  std::int64_t fixed_sequence = 0;     ///< the only sequence length (ViT); 0: the training's
  double widest = 1;                   ///< bound on the elements a token of any tensor but attention scores
  std::int64_t heads = 1;              ///< bound on the heads of any attention
  bool dense_scores = false;           ///< a bias as large as the attention scores exists under every kernel (T5)
  std::vector<LayerSpec> specs;
  std::vector<LayerInstance> instances;        ///< in forward order
  std::vector<std::string_view> registration;  ///< prefixes of full names in registration order; empty: forward order
  Tables tables;
};

/// Names, shapes and order of all parameters of `specs` and `instances`, with the adapters of `adaptation` if given.
[[nodiscard]] Tables tabulate(const Architecture& architecture, const Adaptation* adaptation);

}  // namespace shardsim

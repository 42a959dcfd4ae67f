/* Models of Hugging Face's that tell classes of whole texts, or rewards (tests/reference/hf, made
 * by make_hf.py): their logits are transformers', their labels are settings, and an export says
 * both again.
 *
 * Would catch: a head transposed or left out, a text told of at another token, labels in the order
 * of their text ("10" before "2"), names that a setting cannot hold, a regression taken for a
 * reward, an export that says tokens, or one without the token by which texts end.
 */
#include "tests/unit/hf_fixture.h"

typedef struct Fixture {
    const char *name;
    DType dtype; /* of its files */
    int n_classes;
    ModelSetting setting;
} Fixture;

static const Fixture FIXTURES[] = {
    {"llama_classes", DTYPE_BF16, 3, {"classes", "not good,so-so,good"}},
    {"gpt2_classes", DTYPE_F32, 4, {"classes", "4"}},
    {"gpt_neox_classes", DTYPE_F16, 2, {"classes", "2"}},
    {"qwen2_reward", DTYPE_F32, 1, {"preference", "reward"}},
    {"gemma3_classes", DTYPE_F32, 3, {"classes", "3"}},
    {"mixtral_classes", DTYPE_F32, 3, {"classes", "not good,so-so,good"}},
    {"bert_classes", DTYPE_F32, 2, {"classes", "2"}},
    {"roberta_classes", DTYPE_BF16, 3, {"classes", "not good,so-so,good"}},
    {"modernbert_classes", DTYPE_F32, 3, {"classes", "3"}},
    {"modernbert_mean_classes", DTYPE_F32, 2, {"classes", "no,yes"}},
    {"distilbert_classes", DTYPE_BF16, 3, {"classes", "bad,good,neither"}}};
enum { N_FIXTURES = sizeof(FIXTURES) / sizeof(FIXTURES[0]) };

static const char *setting_of(const HfImport *import, const char *key) {
    const Setting *setting = settings_find(&import->model->settings, key);
    return setting && setting->has_value ? setting_text(setting, import->arena) : "";
}

/* At the token of each text that it is told by. */
static void compare_texts(Run *run, const char *path, int n_classes) {
    SafetensorsInfo tokens, logits, at;
    Safetensors *expect = safetensors_open(path, run->diag);
    const int64_t seq = run->plan->seq, n = BATCH * seq * n_classes;
    bool found =
        expect && safetensors_find(expect, "tokens", &tokens) &&
        safetensors_find(expect, "logits", &logits) && safetensors_find(expect, "at", &at) &&
        tokens.n_bytes == (size_t)(BATCH * seq) * sizeof(int32_t) &&
        logits.n_bytes == (size_t)(BATCH * n_classes) * sizeof(float) && at.shape[0] == BATCH;
    CHECK(found, "%s has other shapes: %s", path, diag_text(run->diag));
    if (found) {
        float *ours = ARENA_ARRAY(run->arena, float, n), theirs[BATCH * 4], error[BATCH * 4];
        int32_t *given = ARENA_ARRAY(run->arena, int32_t, BATCH * seq), where[BATCH];
        memcpy(given, tokens.data, tokens.n_bytes);
        memcpy(theirs, logits.data, logits.n_bytes);
        memcpy(where, at.data, sizeof(where));
        CHECK(engine_logits(run->engine, given, ours, run->diag), "%s", diag_text(run->diag));
        for (int i = 0; i < BATCH * n_classes; i++) {
            int64_t token = i / n_classes * seq + where[i / n_classes];
            error[i] = ours[token * n_classes + i % n_classes] - theirs[i];
        }
        double most = largest(theirs, BATCH * n_classes);
        CHECK(largest(error, BATCH * n_classes) < 1e-5 * most,
              "logits differ by %.2e of the largest", largest(error, BATCH * n_classes) / most);
    }
    safetensors_close(expect);
}

static void test_logits(const Fixture *it) {
    Arena *arena = arena_create();
    Diag *diag = diag_create();
    HfImport imported;
    Run run;
    check_begin(arena_printf(arena, "hf %s: logits are transformers'", it->name));
    const char *dir = fixture(arena, it->name), *path = in_scratch(arena, "weights.safetensors");
    bool fine = import(arena, dir, path, &imported, diag);
    CHECK(fine, "%s", diag_text(diag));
    if (fine) {
        const char *value = setting_of(&imported, it->setting.key);
        CHECK(strcmp(value, it->setting.value) == 0, "%s is %s", it->setting.key, value);
        CHECK(start(&run, &imported, path), "%s", diag_text(run.diag));
        compare_texts(&run, arena_printf(arena, "%s/expect.safetensors", dir), it->n_classes);
        run_close(&run);
    }
    diag_destroy(diag);
    arena_destroy(arena);
}

/* --- labels --- */

#define LONG_NAME                                                                                  \
    "12345678901234567890123456789012345678901234567890123456789012345678901234567890123456789"    \
    "01234567890x"

/* id2label of a model of three classes, and the setting that it becomes; `unnamed`: the label that
 * is to blame. */
static void test_labels(const char *labels, const char *setting, const char *unnamed) {
    Arena *arena = arena_create();
    Diag *diag = diag_create();
    HfImport imported;
    check_begin(arena_printf(arena, "hf labels %s", labels ? labels : "are missing"));
    const char *dir = changed_fixture(arena, "llama_classes", "id2label", labels);
    bool fine = hf_import_open(arena, dir, NULL, NULL, 0, &imported, diag);
    CHECK(fine, "%s", diag_text(diag));
    if (fine) {
        const char *why = imported.config.classes.unnamed;
        CHECK(strcmp(setting_of(&imported, "classes"), setting) == 0, "classes=%s",
              setting_of(&imported, "classes"));
        CHECK(!why == !unnamed && (!why || strcmp(why, unnamed) == 0), "unnamed: %s",
              why ? why : "none");
        hf_import_close(&imported);
    }
    diag_destroy(diag);
    arena_destroy(arena);
}

static void test_all_labels(void) {
    test_labels("{\"2\": \"c\", \"0\": \"a\", \"1\": \"b\"}", "a,b,c", NULL);
    test_labels("{\"0\": \"LABEL_0\", \"1\": \"LABEL_1\", \"2\": \"LABEL_2\"}", "3", NULL);
    test_labels("{\"0\": \"LABEL_2\", \"1\": \"LABEL_1\", \"2\": \"LABEL_0\"}",
                "LABEL_2,LABEL_1,LABEL_0", NULL);
    test_labels("{\"0\": \"0\", \"1\": \"1\", \"2\": \"2\"}", "3", NULL);
    test_labels("{\"0\": \"a\", \"1\": \"\\u00e9\\u00e8\", \"2\": \"1 star\"}",
                "a,\u00e9\u00e8,1 star", NULL);
    test_labels("{\"0\": \"a\", \"1\": \"b, c\", \"2\": \"d\"}", "3", "\"b, c\"");
    test_labels("{\"0\": \"a\", \"1\": \"b\", \"2\": \" d\"}", "3", "\" d\"");
    test_labels("{\"0\": \"a\", \"1\": \"b\", \"2\": \"d \"}", "3", "\"d \"");
    test_labels("{\"0\": \"\", \"1\": \"b\", \"2\": \"d\"}", "3", "\"\"");
    test_labels("{\"0\": \"1\", \"1\": \"2\", \"2\": \"3\"}", "3", "\"1\"");
    test_labels("{\"0\": \"a\", \"1\": \"b\", \"2\": \"a\"}", "3", "\"a\"");
    test_labels("{\"0\": \"a\", \"1\": \"b\\nlayers=9\", \"2\": \"c\"}", "3", "\"b\\nlayers=9\"");
    test_labels("{\"0\": \"a\", \"1\": 7, \"2\": null}", "3", "7");
    test_labels("{\"0\": \"" LONG_NAME "\", \"1\": \"b\", \"2\": \"c\"}", "3",
                "\"12345678901234567890123456789012345678901234567890123456789...");
}

/* Twelve are in the order of their numbers; of far too long a list, only how many. */
static void test_many_labels(void) {
    Arena *arena = arena_create();
    const char *why;
    HfClasses classes;
    const HfFamily *family = hf_family_find("llama");
    check_begin("hf labels: many");
    for (int n = 12; n < 300; n += 200) {
        json_t *json = json_pack("{s:[s], s:{}}", "architectures", "LlamaForSequenceClassification",
                                 "id2label");
        for (int i = n - 1; i >= 0; i--) {
            json_object_set_new(
                json_object_get(json, "id2label"), arena_printf(arena, "%d", i),
                json_string(arena_printf(arena, "%d%.*s", i, n > 12 ? 80 : 1, "x" LONG_NAME)));
        }
        why = hf_classes_read(arena, json, family, family->types, &classes);
        const char *wanted = n > 12 ? "212" : "0x,1x,2x,3x,4x,5x,6x,7x,8x,9x,10x,11x";
        CHECK(!why && strcmp(classes.setting.value, wanted) == 0, "%s", classes.setting.value);
        CHECK(!classes.unnamed == (n == 12), "a label is no name");
        json_decref(json);
    }
    arena_destroy(arena);
}

/* What kind of labels there are: by problem_type, or by their number. */
static void test_kinds(void) {
    static const struct {
        const char *json, *key, *value, *kind; /* NULL: none */
    } CASES[] = {{"{\"problem_type\": null, \"num_labels\": 3}", "classes", "3", NULL},
                 {"{\"problem_type\": \"multi_label_classification\", \"num_labels\": 3}",
                  "classes", "3", "sets"},
                 {"{\"problem_type\": \"regression\", \"num_labels\": 2}", "classes", "2", "mse"},
                 {"{\"problem_type\": \"regression\", \"id2label\": {\"0\": \"LABEL_0\"}}",
                  "classes", "1", "mse"},
                 {"{\"problem_type\": \"regression\", \"id2label\": {\"0\": \"stars\"}}", "classes",
                  "stars", "mse"},
                 {"{\"num_labels\": 1}", "preference", "reward", NULL}};
    check_begin("hf labels: their kinds");
    for (int i = 0; i < (int)(sizeof(CASES) / sizeof(CASES[0])) + 1; i++) {
        Arena *arena = arena_create();
        HfClasses classes;
        const bool encoder = i == (int)(sizeof(CASES) / sizeof(CASES[0])); /* the last, again */
        const int k = encoder ? i - 1 : i;
        const HfFamily *family = hf_family_find(encoder ? "bert" : "llama");
        json_t *json = json_loads(CASES[k].json, 0, NULL);
        json_object_set_new(json, "architectures", json_pack("[s]", "XForSequenceClassification"));
        const char *why = hf_classes_read(arena, json, family, family->types, &classes);
        const char *key = encoder ? "classes" : CASES[k].key,
                   *kind = encoder ? "mse" : CASES[k].kind;
        CHECK(!why && strcmp(classes.setting.key, key) == 0, "%s: %s", CASES[k].json, why);
        CHECK(encoder || strcmp(classes.setting.value, CASES[k].value) == 0, "%s: %s",
              CASES[k].json, classes.setting.value);
        CHECK(kind ? classes.kind.key && strcmp(classes.kind.value, kind) == 0 : !classes.kind.key,
              "%s: %s", CASES[k].json, classes.kind.key);
        json_decref(json);
        arena_destroy(arena);
    }
}

/* --- what an export says --- */

/* The key of the configuration of a fixture with another setting, written like `like`, JSON that
 * the fixture's own is taken over. */
static void expect_said(const char *name, ModelSetting setting, const char *like, const char *key,
                        const char *value) {
    Arena *arena = arena_create();
    Diag *diag = diag_create();
    HfConfig config;
    check_begin(arena_printf(arena, "hf %s: %s=%s like %s has %s", name, setting.key, setting.value,
                             like, key));
    if (hf_config_read(arena, fixture(arena, name), &config, diag)) {
        ModelSetting all[64];
        memcpy(all, config.settings, (size_t)config.n_settings * sizeof(all[0]));
        all[config.n_settings] = setting;
        const Model *model =
            model_load_shipped(arena, config.family->script, all, config.n_settings + 1, 1, diag);
        json_t *more = json_loads(like, 0, NULL), *json = NULL;
        json_object_update(config.json, more);
        if (model) {
            json = hf_config_write(model, config.family, config.type, config.json, "float32", diag);
        }
        CHECK(json, "%s", diag_text(diag));
        const json_t *said = json_object_get(json, key);
        const char *text = said ? hf_config_shown(arena, said) : "none";
        CHECK(strcmp(text, value) == 0, "it is %s", text);
        json_decref(json);
        json_decref(more);
        json_decref(config.json);
    }
    CHECK(diag_error_count(diag) == 0, "%s", diag_text(diag));
    diag_destroy(diag);
    arena_destroy(arena);
}

static void test_said(void) {
    const ModelSetting names = {"classes", "a,b"}, count = {"classes", "3"};
    const ModelSetting reward = {"preference", "reward"}, none = {"classes", "none"};
    const ModelSetting documents = {"documents", "0"}, same = {"masked", "false"};
    const char *base = "{\"eos_token_id\": [5, 6], \"pad_token_id\": null}";
    const char *pads = "{\"eos_token_id\": 5, \"pad_token_id\": 7}";
    expect_said("llama", names, base, "architectures", "[\"LlamaForSequenceClassification\"]");
    expect_said("llama", names, base, "id2label", "{\"0\":\"a\",\"1\":\"b\"}");
    expect_said("llama", names, base, "label2id", "{\"a\":0,\"b\":1}");
    expect_said("llama", names, "{\"num_labels\": 7}", "num_labels", "none");
    expect_said("llama", names, base, "pad_token_id", "5");
    expect_said("llama", names, pads, "pad_token_id", "7");
    expect_said("llama", names, "{\"eos_token_id\": \"x\"}", "pad_token_id", "null");
    expect_said("llama_classes", documents, pads, "pad_token_id", "0");
    expect_said("llama", count, base, "id2label",
                "{\"0\":\"LABEL_0\",\"1\":\"LABEL_1\",\"2\":\"LABEL_2\"}");
    expect_said("llama", reward, base, "architectures", "[\"LlamaForSequenceClassification\"]");
    expect_said("llama", reward, base, "id2label", "{\"0\":\"LABEL_0\"}");
    /* Labels of another task are not those of as many classes here. */
    expect_said("llama", count, "{\"id2label\": {\"0\": \"x\", \"1\": \"y\", \"2\": \"z\"}}",
                "label2id", "{\"LABEL_0\":0,\"LABEL_1\":1,\"LABEL_2\":2}");
    expect_said("gemma3_classes", same, "{}", "id2label",
                "{\"0\":\"yes\",\"1\":\"no, or not\",\"2\":\"maybe\"}");
    expect_said("gemma3_classes", names, "{}", "id2label", "{\"0\":\"a\",\"1\":\"b\"}");
    expect_said("llama_classes", none, "{}", "architectures", "[\"LlamaForCausalLM\"]");
    expect_said("llama_classes", none, "{}", "id2label", "none");
    const char *single = "{\"problem_type\": \"single_label_classification\"}";
    expect_said("llama_classes", same, single, "problem_type", "\"single_label_classification\"");
    expect_said("llama", reward, single, "problem_type", "none");
    const ModelSetting sets = {"class_kind", "sets"}, numbers = {"class_kind", "mse"};
    expect_said("llama_classes", sets, single, "problem_type", "\"multi_label_classification\"");
    expect_said("bert_classes", numbers, "{}", "problem_type", "\"regression\"");
    expect_said("bert_classes", numbers, "{}", "label2id", "{\"LABEL_0\":0,\"LABEL_1\":1}");
    expect_said("bert_classes", (ModelSetting){"padding", "9"}, "{}", "pad_token_id", "9");
    expect_said("bert_classes", (ModelSetting){"transform", "false"}, "{}", "architectures",
                "[\"BertForSequenceClassification\"]");
    expect_said("phi", names, "{}", "architectures", "[\"PhiForSequenceClassification\"]");
}

/* A classifier like the folder of the model that it began as. */
static void test_like_base(void) {
    Arena *arena = arena_create();
    Diag *diag = diag_create();
    HfImport first, second;
    check_begin("hf llama_classes: exported like a model that says tokens");
    const char *path = in_scratch(arena, "weights.safetensors"), *out = in_scratch(arena, "out");
    const char *again = in_scratch(arena, "again.safetensors");
    bool fine = import(arena, fixture(arena, "llama_classes"), path, &first, diag) &&
                export(arena, first.model, path, fixture(arena, "llama31"), DTYPE_BF16, 1000000,
                       out, diag) &&
                import(arena, out, again, &second, diag);
    CHECK(fine && same_files(arena, path, again, diag), "%s", diag_text(diag));
    remove_folder(arena, out);
    diag_destroy(diag);
    arena_destroy(arena);
}

/* --- what is refused --- */

static void expect_refused(const char *name, ModelSetting setting, const char *message) {
    Arena *arena = arena_create();
    Diag *diag = diag_create();
    HfImport imported;
    check_begin(
        arena_printf(arena, "hf %s with %s=%s: %s", name, setting.key, setting.value, message));
    bool opened = hf_import_open(arena, fixture(arena, name), NULL, &setting, 1, &imported, diag);
    if (opened) hf_import_close(&imported);
    CHECK(!opened && diag_error_count(diag) == 1 && strstr(diag_text(diag), message), "%s",
          diag_text(diag));
    diag_destroy(diag);
    arena_destroy(arena);
}

static void expect_no_type(const char *name, const char *message) {
    Arena *arena = arena_create();
    Diag *diag = diag_create();
    HfConfig config;
    check_begin(arena_printf(arena, "hf %s: no classes", name));
    if (hf_config_read(arena, fixture(arena, name), &config, diag)) {
        ModelSetting all[64];
        memcpy(all, config.settings, (size_t)config.n_settings * sizeof(all[0]));
        all[config.n_settings] = (ModelSetting){"classes", "2"};
        const Model *model =
            model_load_shipped(arena, config.family->script, all, config.n_settings + 1, 1, diag);
        CHECK(model && !hf_config_type(model, config.family, NULL, HF_READER, diag),
              "there is one");
        json_decref(config.json);
    }
    CHECK(diag_error_count(diag) == 1 && strstr(diag_text(diag), message), "%s", diag_text(diag));
    diag_destroy(diag);
    arena_destroy(arena);
}

int main(void) {
    if (!mkdtemp(scratch)) BUG("no folder in /tmp");
    for (int i = 0; i < N_FIXTURES; i++) {
        test_logits(&FIXTURES[i]);
        test_round_trip(FIXTURES[i].name, FIXTURES[i].dtype, false, NULL, 5000000000);
        test_round_trip(FIXTURES[i].name, FIXTURES[i].dtype, true, NULL, i % 2 ? 4000 : 1);
    }
    test_all_labels();
    test_many_labels();
    test_kinds();
    test_said();
    test_like_base();
    expect_refused("llama", (ModelSetting){"classes", "2"},
                   "is of a model that says tokens: import it as it is, and train with --load");
    expect_refused("llama_classes", (ModelSetting){"classes", "4"},
                   "'score.weight' is [3, 16]; by the configuration it is [4, 16]");
    expect_refused("llama_classes", (ModelSetting){"classes", "none"},
                   "has no tensor 'lm_head.weight'");
    expect_no_type("granite", "transformers has no granite that tells classes of texts or rewards");
    expect_no_type("olmoe", "there is no ...ForSequenceClassification beside OlmoeForCausalLM");
    expect_no_type("bamba", "transformers has no bamba that");
    remove_scratch();
    return check_report();
}

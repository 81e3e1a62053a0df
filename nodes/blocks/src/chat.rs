//! Chat templates: a conversation becomes the text the model was trained on.

use minijinja::syntax::SyntaxConfig;
use minijinja::value::{Serde, Value};
use minijinja::{Environment, Error as TemplateError, ErrorKind, context};

/// A model's chat template, in the Jinja dialect of Hugging Face's tokenizers.
pub struct ChatTemplate {
    env: Environment<'static>,
    bos: String,
    eos: String,
}

/// A template could not be read or does not take the conversation.
#[derive(Debug, thiserror::Error)]
#[error("chat template: {0}")]
pub struct ChatError(#[from] TemplateError);

const NAME: &str = "chat";

// --- impl ChatTemplate ---

impl ChatTemplate {
    /// Parses a template; `bos` and `eos` are the texts of the tokens it may name.
    pub fn new(source: &str, bos: &str, eos: &str) -> Result<Self, ChatError> {
        let mut env = Environment::new();
        env.set_syntax(SyntaxConfig::builder().trim_blocks(true).lstrip_blocks(true).build()?);
        env.set_unknown_method_callback(minijinja_contrib::pycompat::unknown_method_callback);
        env.add_function("raise_exception", |message: String| -> Result<Value, TemplateError> {
            Err(TemplateError::new(ErrorKind::InvalidOperation, message))
        });
        env.add_template_owned(NAME, source.to_owned())?;
        Ok(Self { env, bos: bos.to_owned(), eos: eos.to_owned() })
    }

    /// Renders a conversation, a list of `{role, content}`, up to the point where the assistant's answer begins.
    pub fn render(&self, messages: &serde_json::Value) -> Result<String, ChatError> {
        let text = self.env.get_template(NAME)?.render(context! {
            messages => Value::from(Serde(messages)),
            add_generation_prompt => true,
            bos_token => self.bos.as_str(),
            eos_token => self.eos.as_str(),
        })?;
        Ok(text)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    const CHATML: &str = "{% for message in messages %}\
        {% if loop.first and messages[0]['role'] != 'system' %}{{ '<|im_start|>system\nBe kind.<|im_end|>\n' }}{% endif %}\
        {{'<|im_start|>' + message['role'] + '\n' + message['content'] + '<|im_end|>' + '\n'}}{% endfor %}\
        {% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}";

    #[test]
    fn chatml_opens_with_a_system_turn_and_ends_before_the_answer() {
        let template = ChatTemplate::new(CHATML, "", "").unwrap();
        let text = template.render(&json!([{"role": "user", "content": "Hi <b> & \"co\""}])).unwrap();
        assert_eq!(
            text,
            "<|im_start|>system\nBe kind.<|im_end|>\n<|im_start|>user\nHi <b> & \"co\"<|im_end|>\n<|im_start|>assistant\n"
        );
        let own = template.render(&json!([{"role": "system", "content": "x"}])).unwrap();
        assert_eq!(own, "<|im_start|>system\nx<|im_end|>\n<|im_start|>assistant\n");
    }

    #[test]
    fn python_methods_work_and_blocks_leave_no_blank_lines() {
        let source = "{%- for m in messages %}\n    {% if m.content.strip().startswith('a') %}\n{{ bos_token + m.get('content') | trim }}\n    {% endif %}\n{%- endfor %}";
        let template = ChatTemplate::new(source, "<s>", "</s>").unwrap();
        assert_eq!(template.render(&json!([{"role": "user", "content": " ab "}])).unwrap(), "<s>ab\n");
    }

    #[test]
    fn a_template_may_refuse_a_conversation() {
        let template = ChatTemplate::new("{{ raise_exception('roles must alternate') }}", "", "").unwrap();
        let error = template.render(&json!([])).unwrap_err().to_string();
        assert!(error.contains("roles must alternate"), "{error}");
        assert!(ChatTemplate::new("{% for %}", "", "").is_err());
    }
}

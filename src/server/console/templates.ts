// Compiles the templates of the console while it is bundled: html`<p class="x">${y}</p>` becomes html("p", { class: "x" }, y).
// htm would do the same in the browser when a template is first shown; here its own parser does it, once.

import htm from "htm";
import { parseSync } from "oxc-parser";

type Part = { type?: string; start: number; end: number };
type Template = Part & {
  tag: { name?: string };
  quasi: { quasis: { value: { cooked: string } }[]; expressions: Part[] };
};

/** A piece of script that htm takes for a value: where htm joins it to a text or copies its properties, it is found again. */
class Code {
  readonly #text: string;

  constructor(text: string, copied: object = {}) {
    this.#text = text;
    Object.assign(this, copied);
  }

  get text(): string {
    return this.#text;
  }

  toString(): string {
    return `\0${this.#text}\0`;
  }
}

/** The source with a call in place of each template. */
export function compileTemplates(source: string, file: string): string {
  const { program, errors } = parseSync(file, source);
  if (errors[0] !== undefined) throw new Error(`Cannot read ${file}: ${errors[0].message}`);
  return compiled({ ...program, start: 0, end: source.length }, source);
}

/** The text of a part, with a call in place of each template in it. */
function compiled(part: Part, source: string): string {
  let text = "";
  let at = part.start;
  for (const template of templatesIn(part)) {
    text += source.slice(at, template.start) + callOf(template, source);
    at = template.end;
  }
  return text + source.slice(at, part.end);
}

/** In their order, without those inside others. */
function templatesIn(part: unknown): Template[] {
  if (typeof part !== "object" || part === null) return [];
  if (isTemplate(part)) return [part];
  return Object.values(part)
    .flatMap(templatesIn)
    .sort((one, other) => one.start - other.start);
}

const isTemplate = (part: object): part is Template => {
  const { type, tag } = part as Partial<Template>;
  return type === "TaggedTemplateExpression" && tag?.name === "html";
};

function callOf({ quasi }: Template, source: string): string {
  const values = quasi.expressions.map((each, at) => {
    const code = `(${compiled(each, source)})`;
    return new Code(code, { [`${at}...${code}`]: true });
  });
  // Browsers show the indentation of a text as one space.
  const texts = quasi.quasis.map(({ value }) => value.cooked.replaceAll(/\n\s+/g, "\n"));
  const made = htm.bind(call)(Object.assign(texts, { raw: texts }), ...values);
  return Array.isArray(made) ? `[${made.map(written).join(",")}]` : written(made);
}

function call(type: unknown, properties: object | null, ...children: unknown[]): Code {
  const given = properties === null ? "null" : `{${Object.entries(properties).map(property).join(",")}}`;
  return new Code(`html(${[written(type), given, ...children.map(written)].join(",")})`);
}

const property = ([name, value]: [string, unknown]): string =>
  /^\d+\.\.\./.test(name) ? name.slice(name.indexOf(".")) : `${JSON.stringify(name)}:${written(value)}`;

function written(value: unknown): string {
  if (value instanceof Code) return value.text;
  if (typeof value !== "string" || !value.includes("\0")) return JSON.stringify(value);
  const pieces = value.split("\0").map((piece, at) => (at % 2 === 0 ? JSON.stringify(piece) : piece));
  return `(${pieces.join("+")})`;
}

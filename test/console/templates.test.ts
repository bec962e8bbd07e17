// Templates become calls while the console is bundled. Each is compared with what htm makes of it.

import { expect, test } from "bun:test";
import { join } from "node:path";
import htm from "htm";
import { compileTemplates } from "../../src/server/console/templates.ts";
import { temporaryDirectory } from "../support/temporary.ts";

const call = (...parts: unknown[]) => ({ call: parts });
const values = { Row: "a component", name: "<b>", on: true, rest: { class: "late", id: "x" }, list: [1, 2] };
type Page = { default(html: unknown, given: typeof values): unknown };

const templates = [
  "html`<p>text</p>`",
  'html`<p class=quiet hidden data-at="1">${name} and ${on ? \'a\' : "b"}</p>`',
  "html`<p class=${name}></p><br />`",
  'html`<p class="a ${name} b${on}" title="${name}">x</p>`',
  "html`<p class=first ...${rest} id=last ...${rest}></p>`",
  "html`<${Row} key=${name} at=${{ one: 1 }}><i /> ${list}<//>`",
  'html`<${Row}>\n    one\n    two ${name}\n    ${" "}<b>three</b>\n  </${Row}>`',
  "html`<ul>\n  ${list.map((each) => html`<li key=${each}>${each > 1 ? html`<b>${`n ${each}`}</b>` : null}</li>`)}\n</ul>`",
  'html`<!-- not shown --><p>a "quoted" text, a \\`tick\\` and \\${no}</p>`',
  "html`${name}`",
  "[/`}${/.test(name), html`<p>${/[/`]}/.test(name)}</p>`, 'html`<p>`'].length",
];

for (const template of templates)
  test(`compiles ${JSON.stringify(template)}`, async () => {
    using directory = temporaryDirectory();
    const source = `export default (html, { ${Object.keys(values).join(", ")} }) => ${template};\n`;
    const compiled = compileTemplates(source, "page.ts");
    const shown = async (name: string, text: string, html: unknown) => {
      const path = join(directory.path, name);
      await Bun.write(path, text);
      return JSON.stringify(((await import(path)) as Page).default(html, values));
    };
    const byHtm = await shown("templates.ts", source, htm.bind(call));
    // Without the indentation, which browsers show as one space.
    expect(await shown("calls.ts", compiled, call)).toBe(byHtm.replaceAll(/\\n +/g, "\\n"));
    expect(compiled).not.toContain("=> html`");
  });

test("types and text that only looks like a template stay", () => {
  const source = 'const a: string = "html`<p></p>`"; // html`<p></p>`\nexport type B = { html: `<p>` };\n';
  expect(compileTemplates(source, "page.ts")).toBe(source);
});

test("a file that cannot be read is named", () => {
  expect(() => compileTemplates("const = html`<p>", "page.ts")).toThrow("Cannot read page.ts");
});

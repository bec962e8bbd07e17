// Templates of the pages: `html` makes Preact elements, which hold texts as texts. Nothing in the console makes HTML from a
// string. While the console is bundled, templates become calls of Preact (src/server/console/templates.ts), so that browsers
// load no htm.

import { h, type VNode } from "preact";
import htm from "htm";

/** htm gives an array for several elements side by side. Pages take both alike, so the type says one. */
export const html = htm.bind(h) as (strings: TemplateStringsArray, ...values: readonly unknown[]) => VNode;

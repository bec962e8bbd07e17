// Templates without a build step for the reader: `html` makes Preact elements, which hold texts as texts. Nothing in the
// console makes HTML from a string.

import { h, type VNode } from "preact";
import htm from "htm";

/** htm gives an array for several elements side by side. Pages take both alike, so the type says one. */
export const html = htm.bind(h) as (strings: TemplateStringsArray, ...values: readonly unknown[]) => VNode;

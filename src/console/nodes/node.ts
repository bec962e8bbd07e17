// What is shown of one node, beside the list and on its page: one file, which the list does not wait for.

import "../core.ts";
export { Aside } from "./aside.tsx";
export { dialogs } from "./dialogs.tsx";
export { NodePage } from "./page.tsx";

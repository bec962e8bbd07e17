// What is shown of one node, beside the list and on its page: one file, which the list does not wait for.

import "../core.ts";
export { Aside } from "../nodes/aside.tsx";
export { dialogs } from "../nodes/dialogs.tsx";
export { NodePage } from "./page.tsx";

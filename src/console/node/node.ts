// One script for what is shown of one node, beside the list and on its page. The list does not wait for it.

export { Aside } from "../nodes/aside.tsx";
export { NodePage } from "./page.tsx";

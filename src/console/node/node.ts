// What is shown of one node, beside the list and on its page: one file, which the list does not wait for.

export { Aside } from "../nodes/aside.tsx";
export { NodePage } from "./page.tsx";

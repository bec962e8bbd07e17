// The list of nodes, and the questions and forms of what can be done with them, for which other pages do not wait: one file,
// because the list needs both.

export { dialogs } from "../nodes/dialogs.tsx";
export { NodeList } from "../nodes/list-page.tsx";
export { Edit } from "./edit.tsx";

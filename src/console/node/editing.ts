// The list of nodes, the ways through them, and the questions and forms of what can be done with them, for which other pages do
// not wait: one file, because the list needs both.

export { dialogs } from "../nodes/dialogs.tsx";
export { NodeList } from "../nodes/list-page.tsx";
export { Begin } from "../rollouts/begin.tsx";
export { Routes } from "../pages/routes.tsx";
export { Edit } from "./edit.tsx";

// The questions and forms of what can be done with nodes: one file, for which their pages do not wait.

export { dialogs } from "../nodes/dialogs.tsx";
export { Edit } from "./edit.tsx";

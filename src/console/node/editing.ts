// One script for the pages with lists of nodes and of routes, and for the dialogs that change a node or begin a rollout. The
// lists need these dialogs; other pages load the script when they need one.

export { dialogs } from "../nodes/dialogs.tsx";
export { NodeList } from "../nodes/list-page.tsx";
export { Begin } from "../rollouts/begin.tsx";
export { Routes } from "../pages/routes.tsx";
export { Edit } from "./edit.tsx";

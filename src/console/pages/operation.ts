// Pages about what goes through all nodes, and about what was: one file of all takes fewer bytes than one for each.

export { Certificates } from "../certificates/certificates.tsx";
export { FlowsPage } from "./flows.tsx";
export { PastPage } from "./past.tsx";
export { Rollouts } from "./rollouts.tsx";
export { Servers } from "./servers.tsx";
export { Organizations, Users } from "./staff.tsx";

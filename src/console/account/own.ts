// Pages of one user: one file for all takes fewer bytes than one for each.

export { Account } from "./account.tsx";
export { CommandLine } from "./command-line.tsx";
export { Join } from "./join.tsx";

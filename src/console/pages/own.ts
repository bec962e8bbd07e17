// Pages of one user: one file for all takes fewer bytes than one for each.

export { Account } from "./account.ts";
export { CommandLine } from "./command-line.ts";
export { Join } from "./join.ts";

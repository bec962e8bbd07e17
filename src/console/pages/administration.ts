// Pages of forms and lists, much alike: one file of all takes fewer bytes than one for each.

export { Account } from "../account/account.tsx";
export { CommandLine } from "../account/command-line.tsx";
export { Join } from "../account/join.tsx";
export { Webhooks } from "../webhooks/webhooks.tsx";
export { People } from "./people.tsx";
export { Routes } from "./routes.tsx";
export { Settings } from "./settings.tsx";
export { Tokens } from "./tokens.tsx";

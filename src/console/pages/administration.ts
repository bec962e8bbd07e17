// Pages of forms and lists, much alike: one file of all takes fewer bytes than one for each.

export { Account } from "../account/account.tsx";
export { CommandLine } from "../account/command-line.tsx";
export { Join } from "../account/join.tsx";
export { UserSessions } from "../account/session-list.tsx";
export { Alarms } from "../webhooks/alarms.tsx";
export { People } from "./people.tsx";
export { Settings } from "./settings.tsx";
export { Tokens } from "./tokens.tsx";

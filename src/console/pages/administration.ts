// Pages whose files are small and much alike: one file of all takes fewer bytes than one for each.

export { Activity, AuditLog } from "./activity.ts";
export { Certificates } from "./certificates.ts";
export { People } from "./people.ts";
export { Settings } from "./settings.ts";
export { Tokens } from "./tokens.ts";
export { Webhooks } from "./webhooks.ts";

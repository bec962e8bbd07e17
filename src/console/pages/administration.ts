// Pages whose files are small and much alike: one file of all takes fewer bytes than one for each.

export { People } from "./people.tsx";
export { Tokens } from "./tokens.tsx";
export { Webhooks } from "../webhooks/webhooks.tsx";

// `agent switch TEAM`.

import { teamCommand } from "./team-command.ts";

export const command = teamCommand(
  "switch",
  "Start a team, stop the others",
  "The team is remembered as the active one. Teams of mode server are not touched.",
);

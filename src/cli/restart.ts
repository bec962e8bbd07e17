// `agent restart TEAM`.

import { teamCommand } from "./team-command.ts";

export const command = teamCommand(
  "restart",
  "Restart a team's overlay",
  "The tunnels are down for a moment. A change of configuration needs no restart.",
);

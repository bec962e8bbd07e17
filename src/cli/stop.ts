// `agent stop TEAM`.

import { teamCommand } from "./team-command.ts";

export const command = teamCommand(
  "stop",
  "Stop a team's overlay",
  "It stays stopped, also after a reboot, until somebody starts it.",
);

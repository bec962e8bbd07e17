// What self-update does on a machine in server mode.

import { describeUpdates } from "../support/update-trials.ts";

describeUpdates("server");

// What self-update does on a machine in desktop mode.

import { describeUpdates } from "../support/update-trials.ts";

describeUpdates("desktop");

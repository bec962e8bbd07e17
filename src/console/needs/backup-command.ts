// The command of a backup. Without an import, so that each page may show it.

/** On the machine of the control plane. */
export const backupCommand = "sudo agent admin backup /backup/control-$(date +%F).db";

// What a restore carried over from the replaced database, for the operator.

export type Carried = {
  /** Nodes of the backup that were revoked after it, and stay revoked. */
  revoked_nodes: number;
  /** Names of nodes that registered after the backup, or again: they have to register once more. */
  lost_nodes: string[];
  /** The same nodes with their organizations (`acme/laptop`). */
  register_again: string[];
  /** Organizations whose CA was replaced after the backup: they trust the retired CA again. */
  authorities_lost: string[];
  /** Rules of the backup that were deleted after it, and stay deleted. */
  deleted_rules: number;
  /** Rules that were created after the backup. */
  lost_rules: number;
  /** All staff users of the backup were disabled after it, and stay disabled. */
  staff_missing: boolean;
  /** Organizations (`acme`) and nodes (`acme/laptop`) whose overrides changed after the backup: they are back. */
  overrides_back: string[];
  /** Organizations that got an IPv6 network after the backup: it is lost, and so are the addresses of their nodes in it. */
  networks6_lost: string[];
  /** Organizations whose signers published a seal after the backup. It stays, since their nodes hold it. */
  seals_kept: string[];
};

/** SQL: a row that the restored database has stays. */
export const keepPresent = "ON CONFLICT DO NOTHING";

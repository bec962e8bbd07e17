// The names of organizations. Light: `status` loads it to tell their directories from others.

export const slugPattern = /^[a-z][a-z0-9-]{0,39}$/;

// The pattern of organization slugs. Keep this file light: `status` loads it to recognize directories of organizations.

export const slugPattern = /^[a-z][a-z0-9-]{0,39}$/;

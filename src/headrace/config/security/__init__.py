# SPDX-License-Identifier: Apache-2.0
"""Settings of listeners, logins, ACLs and quotas, and how names of certificates become principals."""

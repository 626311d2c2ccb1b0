# SPDX-License-Identifier: Apache-2.0
from .record import main

raise SystemExit(main())
